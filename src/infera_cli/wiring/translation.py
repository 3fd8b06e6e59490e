"""Requests that are rewritten on their way: which, and with what."""

from __future__ import annotations

from infera_cli.config.settings import ServeSettings
from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.translation.aliases import Aliases
from infera_cli.gateway.translation.counting import PromptCounter, TokenizersOf
from infera_cli.gateway.translation.desk import Desk, kinds_of
from infera_cli.gateway.translation.speakers import Fetch, Speakers
from infera_cli.tokens.load import load_all
from infera_cli.wiring.sim_tokens import BUILT_IN

_USUAL_KEEPALIVE = 15.0
_MESSAGES = ("/v1/messages", "/v1/messages/count_tokens")
_FIXED = {"auto": {}, "translate": dict.fromkeys(_MESSAGES, False), "passthrough": dict.fromkeys(_MESSAGES, True)}


def install(
    settings: ServeSettings, gate: Gate, fetch: Fetch, bus: Bus, tokenizers: TokenizersOf | None = None
) -> Aliases:
    """Let `gate` rewrite what the settings name; tokens are counted here where there are `tokenizers`.

    Raises ConfigError.
    """
    if tokenizers is None and settings.router_tokenizer_path:
        tokenizers = load_all(settings.router_tokenizer_path, BUILT_IN)
    aliases = Aliases(settings.model_alias)
    speakers = Speakers(fetch, fixed=_FIXED[settings.anthropic])
    every = settings.stream_keepalive
    gate.desk = Desk(
        speakers=speakers, aliases=aliases, keepalive=_USUAL_KEEPALIVE if every is None else every,
        counter=PromptCounter(tokenizers) if tokenizers is not None else None,
    )  # fmt: skip
    gate.kinds = kinds_of(aliases)

    def hear(event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.what in {"removed", "not_ready"}:
            speakers.forget(event.worker)

    bus.subscribe(hear, WorkerChanged)
    return aliases
