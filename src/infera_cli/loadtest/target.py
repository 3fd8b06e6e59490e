"""Look at the target before the load: is it there, what does it serve, is it a router of ours."""

from __future__ import annotations

import ssl
from time import monotonic, sleep
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec

from infera_cli.errors import ConfigError, ServerUnreachable, UsageError
from infera_cli.loadtest.options import Options
from infera_cli.workload.requests import PATHS

TIMEOUT = 10.0
PAUSE = 0.5     # seconds between two looks at a target that is not up yet
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class About(msgspec.Struct, frozen=True):
    """What the target said. When it is a router of ours, `workers` are base URLs by worker id, and `router` says its
    version, its policy, and the hash of its settings."""

    model: str
    models: tuple[str, ...]
    workers: dict[str, str]
    router: dict[str, str] = {}


def base(url: str, flag: str = "--base-url") -> str:
    """The address without a trailing slash, `/v1` or the path of an endpoint.

    Raises UsageError for what is no HTTP address, ConfigError for one with more in it than is used.
    """
    shown = url.rpartition("@")[2]      # a password is not repeated
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{flag} {shown!r} is no address: {str(error).lower()}", param=flag) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{flag} {shown!r} is not an address such as http://127.0.0.1:8000", param=flag)
    if "@" in parts.netloc:
        raise ConfigError(
            f"{flag} holds a user or password, which would end up in reports: leave it out, and give"
            f" --header Authorization=…, or a key with --api-key-file", param=flag,
        )
    if "?" in url or "#" in url:
        raise ConfigError(f"{flag} ends before the ? or #: requests have paths of their own", param=flag)
    for path in PATHS.values():
        url = url.removesuffix(path)    # a whole address, as other tools want it
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def placement(options: Options) -> str:
    """Where the load comes from, seen from the target."""
    if options.master:
        return "on machines that joined"
    return "same host" if urlsplit(options.base_url).hostname in LOOPBACK else "over the network"


def look(options: Options, patience: float = 0.0) -> About:
    """Ask the target; wait up to `patience` seconds for it to come up.

    Raises ServerUnreachable, or ConfigError when it does not serve the model or refuses the key.
    """
    checked = trust(options)
    with httpx.Client(headers=options.headers, timeout=TIMEOUT, verify=checked, trust_env=False) as client:
        answer = _first(client, f"{options.base_url}/v1/models", patience)
        models = _models(answer)
        workers = _workers(client, options.base_url)
        router = _router(client, options.base_url) if workers else {}
        return About(_choose(options, models), models, workers, router)


def trust(options: Options) -> ssl.SSLContext | bool:
    """Which certificates the target may have. Raises ConfigError."""
    if options.insecure or options.ca is None:
        return not options.insecure
    try:
        return ssl.create_default_context(cafile=options.ca)
    except OSError as error:
        raise ConfigError(f"cannot use the certificates in {options.ca}: {error.strerror}") from None


def _first(client: httpx.Client, url: str, patience: float) -> httpx.Response:
    until = monotonic() + patience
    while True:
        try:
            answer = client.get(url)
        except httpx.HTTPError as error:
            if monotonic() >= until:
                host = urlsplit(url).netloc
                raise ServerUnreachable(f"cannot reach {host}: {error}; is the server running?") from None
        else:
            not_yet = answer.status_code in (502, 503) or (answer.is_success and not _models(answer))
            if not not_yet or monotonic() >= until:
                return answer
        sleep(PAUSE)


def _models(answer: httpx.Response) -> tuple[str, ...]:
    if answer.status_code in (401, 403):
        raise ConfigError(f"the target refuses us ({answer.status_code}); give its key with --api-key-file")
    try:
        listed = answer.json()["data"] if answer.is_success else []
        return tuple(str(model["id"]) for model in listed)
    except (ValueError, KeyError, TypeError):
        return ()


def _choose(options: Options, models: tuple[str, ...]) -> str:
    if not options.model:
        if not models:
            raise ConfigError("the target does not say which models it serves; give --model", param="--model")
        return models[0]
    if models and options.model not in models:
        served = ", ".join(models)
        raise ConfigError(f"the target does not serve {options.model!r}, but {served}", param="--model")
    return options.model


def _workers(client: httpx.Client, url: str) -> dict[str, str]:
    """Base URLs of the workers behind a router of ours; empty for anything else."""
    try:
        rows = client.get(f"{url}/v1/workers").json()["workers"]
        return {str(row["worker_id"]): _public(str(row["url"])) for row in rows if row.get("status") != "dead"}
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _public(url: str) -> str:
    """An address without a user and password, for reports."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _router(client: httpx.Client, url: str) -> dict[str, str]:
    try:
        said = client.get(f"{url}/health").json()
        return {name: str(said[name]) for name in ("version", "policy", "config")}
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return {}


def direct_urls(options: Options, about: About) -> tuple[str, ...]:
    """The workers to measure past the router. Raises ConfigError when there are none to be found."""
    if options.direct is None:
        return ()
    found = options.direct or tuple(about.workers.values())
    if not found:
        raise ConfigError("the target does not list its workers; give their addresses with --direct-url")
    return tuple(base(url, "--direct-url") for url in found)
