"""What is counted of prompts, for the metrics; one warning a cause, not one a request (R097)."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from infera_cli.routing.prompt import Prompt

log = logging.getLogger("infera.kv")

_WHY = {
    "no_tokenizer": "no tokenizer is configured for its model",
    "no_template": "the tokenizer has no chat template",
    "template": "the chat template would not render it",
    "request": "its form is not known here",
    "content": "it has content that is no text",
    "body": "its body could not be read",
    "tokenizer": "the tokenizer failed on it",
    "timeout": "its tokens took too long",
    "busy": "too many prompts wait for their tokens",
}


@dataclass(slots=True)
class PromptCounters:
    """Running totals. `fallbacks` were routed by load alone, by cause; `short` had no full block; `retention`
    by hint; `multimodal` had images or sounds, so their text was not looked at (infera-wire §8)."""

    rendered: int = 0
    threaded: int = 0
    short: int = 0
    multimodal: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    retention: Counter[str] = field(default_factory=Counter)
    tokens: int = 0

    def read(self, prompt: Prompt) -> None:
        """A prompt's tokens are known."""
        self.rendered += 1
        self.tokens += max(prompt.lengths.values(), default=0)
        if prompt.chains and not any(prompt.chains.values()):
            self.short += 1

    def fallback(self, cause: str, detail: str = "") -> None:
        """A request could not be rendered."""
        if not self.fallbacks[cause]:
            why = _WHY.get(cause, cause)
            log.warning(
                "A request is routed by load alone: %s%s. Others for this reason are only counted "
                "(infera_kv_fallbacks_total).", why, f" ({detail[:200]})" if detail else "",
            )  # fmt: skip
        self.fallbacks[cause] += 1


class Unheard(PromptCounters):
    """For prompts that nobody serves: nothing is logged, and nobody looks at the totals."""

    def fallback(self, cause: str, detail: str = "") -> None:
        """See PromptCounters."""
