"""`infera explain`: where a request would go, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from infera_cli.cli.console import Cell, console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.cli.servers import target
from infera_cli.config.settings import ClientSettings
from infera_cli.errors import ConfigError, UsageError

app = verb()

File = Annotated[str | None, typer.Argument(metavar="FILE", help="A request body; - reads standard input.")]
Prompt = Annotated[str | None, typer.Option(metavar="TEXT", help="Ask about a chat with this message.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="The model it asks for.")]
Session = Annotated[str | None, typer.Option(metavar="ID", help="Sent as X-Session-Id.")]
Route = Annotated[str, typer.Option(metavar="PATH", help="The route it would be sent to.")]
Header = Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header; repeat for more.")]
Output = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table or json.",
                                     autocompletion=lambda: ["table", "json"])]
Json = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


_FORMS = "/v1/audio/"
"""Requests for these routes are forms."""


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def explain(
    typed: dict[str, Any], *, file: File = None, prompt: Prompt = None, model: Model = None,
    session: Session = None, path: Route = "/v1/chat/completions", header: Header = None,
    output: Output = "table", as_json: Json = False,
) -> int:
    """Show where a request would go, and why. Nothing is sent to a worker.

    \b
    infera explain --prompt "hello" --session chat-1
    infera explain request.json
    """
    from infera_cli.client.explain import explain as ask
    from infera_cli.client.http import Server

    if output not in ("table", "json"):
        raise UsageError(f"-o must be table or json, not {output!r}")
    headers = dict(_header(text) for text in header or ())
    if session is not None:
        headers["X-Session-Id"] = session
    decision = ask(Server(**target(typed)), path=path, headers=headers, body=_body(file, prompt, model, path))
    if as_json or output == "json":
        console.json(decision)
    else:
        _show(decision)
    return 0 if decision["worker"] else 1


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise UsageError(f"--header must look like NAME:VALUE, not {text!r}")
    return name.strip(), value.strip()


def _body(file: str | None, prompt: str | None, model: str | None, path: str) -> str:
    """The request body to ask about, as text."""
    if file is not None and (prompt is not None or model is not None):
        raise UsageError("give a FILE, or --prompt and --model, not both")
    if file is not None:
        return _of_a_request(_read(file), "standard input" if file == "-" else file, path)
    made: dict[str, Any] = {} if model is None else {"model": model}
    return json.dumps({**made, "messages": [{"role": "user", "content": prompt or ""}]})


def _of_a_request(text: str, where: str, path: str) -> str:
    """The text itself; what is no request would be explained as one without a prompt. Raises ConfigError."""
    if path.startswith(_FORMS):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} holds no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{where} holds no request: a JSON object with messages or a prompt is expected")
    return text


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"cannot read {file}: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text") from None


def _show(decision: dict[str, Any]) -> None:
    if decision["worker"]:
        console.data(f"{decision['worker']}  ({decision.get('why')})")
    else:
        console.error(str(decision.get("error") or "no worker can take it"))
    said = {name: decision.get(name) for name in ("policy", "affinity", "model", "session")}
    console.data("  ".join(f"{name}: {value}" for name, value in said.items() if value))
    candidates = decision.get("candidates") or []
    if candidates:
        console.data("")
        rows = [_row(candidate, decision["worker"]) for candidate in candidates]
        console.table(("CANDIDATE", "OPEN", "SCORE", "DROPPED"), rows)


def _row(candidate: dict[str, Any], chosen: str | None) -> list[Cell]:
    terms = candidate.get("terms") or {}
    score = "  ".join(f"{name}={value:g}" for name, value in terms.items())
    mark = "* " if candidate.get("worker") == chosen else "  "
    name = f"{mark}{candidate.get('worker')}"
    return [name, candidate.get("outstanding"), score or None, candidate.get("dropped")]
