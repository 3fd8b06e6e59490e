"""A prompt as `kv-aware` sees it: chained hashes per way of rendering and unit, images, retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

Retention = Literal["none", "short", "long"]
Style = str
"""How an engine makes tokens of a request: vllm, sglang, atom, pypto, sim (engines §6)."""

PartName = str | tuple[int, str]
"""A part of a prompt by its name, or a message by its number and role."""
Parts = Sequence[tuple[PartName, int]]
"""Names and digests of a prompt's parts, in order."""

_FACTORS: Mapping[Retention | None, float] = {"long": 2.0, "none": 0.1}


class Chosen(Protocol):
    """Where the prompt goes, as far as others need to know."""

    @property
    def hits(self) -> int:
        """Leading blocks that are there."""

    @property
    def blocks(self) -> int:
        """Full blocks of the prompt."""

    @property
    def rank(self) -> int | None:
        """The rank behind the worker's address that shall serve."""


class Prompt:
    """What one request asks to be computed. `chains` and `lengths` are empty where it could not be rendered.

    `chains` has the hashes of the full blocks by (style, unit), `lengths` the tokens by style. `images` are
    the keys of its images in document order (infera-wire §4.7), None for text. `expected` are the tokens that
    the chosen worker should report as cached, −1 while nobody was chosen; `choice` is the scorer's last one. `parts`
    tell where two turns of a conversation differ.
    """

    __slots__ = ("chains", "choice", "expected", "images", "lengths", "parts", "retention")

    def __init__(
        self, *, chains: Mapping[tuple[Style, int], Sequence[int]] | None = None,
        lengths: Mapping[Style, int] | None = None, images: Sequence[int] | None = None,
        retention: Retention | None = None, parts: Parts = (),
    ) -> None:  # fmt: skip
        self.chains = chains if chains is not None else {}
        self.lengths = lengths if lengths is not None else {}
        self.images = images
        self.retention = retention
        self.parts = parts
        self.expected = -1
        self.choice: Chosen | None = None

    @property
    def factor(self) -> float:
        """What the retention hint makes of the weight (infera-wire §4.4)."""
        return _FACTORS.get(self.retention, 1.0)
