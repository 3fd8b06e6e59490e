"""`infera prewarm`: a prefix into the cache before it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import Column, Json, Output, show
from infera_cli.cli.servers import target
from infera_cli.cli.values import value_of
from infera_cli.config.kinds import Integer
from infera_cli.config.settings import ClientSettings
from infera_cli.errors import InferaError, UsageError

app = verb()

_PATIENCE = 600.0
_WHAT, _HOW = "What", "How"

Prompts = Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="Texts to warm.")]
Files = Annotated[list[str] | None, typer.Option("--file", metavar="FILE", rich_help_panel=_WHAT,
                                          help="Texts, prompts or messages as JSON, JSON Lines or plain text.")]
Hashes = Annotated[list[str] | None, typer.Option("--hashes", metavar="HEX", rich_help_panel=_WHAT,
                                           help="Block hashes for the daemon instead; repeat for more.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", rich_help_panel=_WHAT,
                                           help="Of this model; the only one served unless given.")]
Tokenizer = Annotated[str | None, typer.Option("--tokenizer", metavar="PATH", rich_help_panel=_HOW,
                                               help="Hash blocks with this tokenizer, and tell the cache daemon.")]
Block = Annotated[str, typer.Option("--block-size", metavar="N", help="Tokens in a block.", rich_help_panel=_HOW)]
Compat = Annotated[str, typer.Option("--compat-key", metavar="KEY", help="Of the daemon's entries.",
                                     rich_help_panel=_HOW)]
Deadline = Annotated[str, typer.Option("--deadline-ms", metavar="N", rich_help_panel=_HOW,
                                       help="When the daemon need not bother any more.")]
Workers = Annotated[str | None, typer.Option("--workers", metavar="N", rich_help_panel=_HOW,
                                             help="Warm N workers, not just the one that routing chooses.")]
KeyFile = Annotated[str | None, typer.Option("--api-key-file", metavar="FILE", rich_help_panel=_HOW,
                                             help="File with the client key for requests.")]

COLUMNS = (
    Column("PROMPT", lambda r: r.get("prompt")),
    Column("BY", lambda r: r.get("how")),
    Column("WORKER", lambda r: r.get("worker")),
    Column("TOKENS", lambda r: r.get("tokens")),
    Column("CACHED", lambda r: r.get("cached")),
    Column("BLOCKS", lambda r: r.get("blocks")),
    Column("SECONDS", lambda r: r.get("seconds")),
    Column("ERROR", lambda r: r.get("error")),
)


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def prewarm(
    typed: dict[str, Any], prompts: Prompts = None, file: Files = None, hashes: Hashes = None, model: Model = None,
    tokenizer: Tokenizer = None, block_size: Block = "16", compat_key: Compat = "", deadline_ms: Deadline = "1000",
    workers: Workers = None, api_key_file: KeyFile = None, output: Output = "table", as_json: Json = False,
) -> None:  # fmt: skip
    """Have a prefix in the cache before it is asked for.

    \b
    infera prewarm "You are a helpful assistant."
    infera prewarm --file system-prompts.jsonl --workers 2

    With a tokenizer, the cache daemon of the server is told of the blocks; where there is none, and without a
    tokenizer, each prefix is computed by a request for one token.
    """
    from infera_cli.client import http
    from infera_cli.client import prewarm as client

    where = target(typed)
    admin = http.Server(**where)
    items = [client.Item(prompt=text) for text in prompts or ()]
    items += [item for name in file or () for item in client.read_items(Path(name))]
    if not items and not hashes:
        raise UsageError("nothing to warm: give prompts, --file FILE or --hashes HEX")
    name = model or client.model_of(http.Server(where["url"], token=_key(api_key_file), timeout=where["timeout"]))
    deadline = _number(deadline_ms, "--deadline-ms")
    if hashes and not client.hint(admin, name, hashes, compat_key, deadline):
        raise InferaError("hashes can only go to a cache daemon, and the server has none (--kvd-socket-path)")
    rows: list[dict[str, Any]] = []
    if items and tokenizer:
        blocks = client.hashes_of(items, tokenizer, _number(block_size, "--block-size"))
        every = list(dict.fromkeys(one for found in blocks for one in found))
        if client.hint(admin, name, every, compat_key, deadline):
            rows = [client.hinted(item, one) for item, one in zip(items, blocks, strict=True)]
        else:
            console.say("the server has no cache daemon; warming by requests")
    if items and not rows:
        jobs = list(_jobs(items, name, where, workers, api_key_file))
        rows = [client.warm(server, item, name, worker) for server, item, worker in _shown(jobs)]
    show("prefixes", rows, COLUMNS, key="prompt", output=output, as_json=as_json)
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        raise InferaError(f"{failed} of {len(rows)} did not become warm")


def _jobs(items: list[Any], model: str, where: Any, workers: str | None, key_file: str | None) -> Iterator[Any]:
    """(server, item, worker) of each request to make."""
    from infera_cli.client import http
    from infera_cli.client import prewarm as client

    router = http.Server(where["url"], token=_key(key_file), timeout=_PATIENCE)
    count = None if workers is None else _number(workers, "--workers")
    for item in items:
        if count is None:
            yield router, item, None
        else:
            for worker in client.nearest(http.Server(**where), item, model, count):
                yield client.engine(worker, _PATIENCE), item, worker["worker_id"]


def _shown(jobs: list[Any]) -> Iterable[Any]:
    """The jobs, with a bar while they are done on a terminal."""
    if not sys.stderr.isatty():
        return jobs
    from rich.console import Console
    from rich.progress import track

    return track(jobs, "warming", console=Console(stderr=True), transient=True)


def _number(text: str, flag: str) -> int:
    return int(value_of(Integer(low=1), text, flag))


def _key(path: str | None) -> str | None:
    from infera_cli.config import secrets

    return secrets.one(None, path, "client key")
