"""`--worker URL`: one engine that already runs, named by its base URL."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from infera_cli.errors import ConfigError
from infera_cli.protocol.address import bare_host, path_prefix
from infera_cli.routing.types import WorkerSpec

log = logging.getLogger("infera.fleet")

SOURCE = "worker"


def workers(
    urls: Iterable[str], *, api_key: str | None = None, ca_file: str | None = None
) -> list[WorkerSpec]:
    """One spec per URL, in order; a URL given twice counts once, with a warning.

    Two URLs of one host and port with different prefixes are two workers; the second's id carries its prefix.
    Raises ConfigError for a URL that cannot be used.
    """
    specs: dict[str, WorkerSpec] = {}
    ids: set[str] = set()
    for url in urls:
        spec = parse_worker(url, api_key=api_key, ca_file=ca_file)
        if spec.url in specs:
            log.warning("--worker %s is given twice; it counts once", spec.url)
            continue
        if spec.id in ids:
            spec = replace(spec, id=f"{spec.scheme}:{spec.authority}{spec.path_prefix}")
        specs[spec.url] = spec
        ids.add(spec.id)
    return list(specs.values())


def parse_worker(url: str, *, api_key: str | None = None, ca_file: str | None = None) -> WorkerSpec:
    """`http(s)://host[:port][/prefix]` as a spec with id `host:port`; the port defaults to the scheme's.

    Raises ConfigError: one sentence with the URL and what to write instead.
    """
    if not url.isprintable() or " " in url:
        raise _refuse(url, "it holds white space or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:
        raise _refuse(url, str(reason)) from None
    scheme = _scheme(url, parts)
    _check_parts(url, parts)
    try:
        host = bare_host(parts.hostname or "")
    except ValueError as reason:
        raise _refuse(url, f"its host {reason}") from None
    try:
        prefix = path_prefix(parts.path)
    except ValueError as reason:
        raise _refuse(url, f"its path {reason}") from None
    if port == 0:
        raise _refuse(url, "port 0 is none that an engine listens on")
    spec = WorkerSpec(
        id="", host=host, port=port or (443 if scheme == "https" else 80), scheme=scheme, path_prefix=prefix,
        source=SOURCE, api_key=api_key, ca_file=ca_file if scheme == "https" else None,
    )
    return replace(spec, id=spec.authority)


def _scheme(url: str, parts: SplitResult) -> Literal["http", "https"]:
    if parts.scheme == "http" and parts.netloc:
        return "http"
    if parts.scheme == "https" and parts.netloc:
        return "https"
    raise _refuse(url, "it has to look like http://HOST:PORT or https://HOST:PORT")


def _check_parts(url: str, parts: SplitResult) -> None:
    if "@" in parts.netloc:
        # The URL is not repeated: what stands before the @ is a secret.
        raise ConfigError("--worker URL holds credentials; give the key by --worker-api-key-file instead")
    if "?" in url or "#" in url:
        raise _refuse(url, "a base URL has no query and no fragment")
    if parts.netloc.endswith(":"):
        raise _refuse(url, "the port is missing after the colon")


def _refuse(url: str, reason: str) -> ConfigError:
    shown = url if url.isprintable() else ascii(url)
    return ConfigError(f"--worker {shown}: {reason} (e.g. http://10.0.0.2:8000)")
