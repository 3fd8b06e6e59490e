"""Names of models that clients use and engines do not: `claude-*` for whatever is served here."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from infera_cli.errors import ConfigError

_WILD = frozenset("*?[")
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Aliases:
    """Patterns in the order given; an exact name wins over all patterns, else the first that fits.

    Raises ConfigError for a pair that is not PATTERN=MODEL.
    """

    def __init__(self, pairs: Sequence[str] = ()) -> None:
        self.exact: dict[str, str] = {}
        self._patterns: list[tuple[str, str]] = []
        for pair in pairs:
            name, sign, model = (part.strip() for part in pair.partition("="))
            if not (name and sign and model):
                raise ConfigError(f"--model-alias {pair!r} must look like NAME=MODEL, e.g. 'claude-*=qwen3'")
            if _WILD.isdisjoint(name):
                self.exact[name] = model
            else:
                self._patterns.append((name, model))

    def __bool__(self) -> bool:
        return bool(self.exact or self._patterns)

    def resolve(self, name: str) -> str | None:
        """The engines' name of the model, None where `name` is no alias."""
        found = self.exact.get(name)
        if found is not None:
            return found
        return next((model for pattern, model in self._patterns if fnmatchcase(name, pattern)), None)


def with_model(body: bytes | bytearray, model: str) -> bytes | bytearray:
    """The body with another `model`; every other member stays as it was written. Untouched where it is no object."""
    try:
        members = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    members["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(members)
