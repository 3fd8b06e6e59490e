"""Every setting with its value and origin, as plain values for `infera config show`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from infera_cli.config.catalogue import catalogue
from infera_cli.config.layers import Flags, Loaded, load


def fingerprint(settings: Any) -> str:
    """Twelve hex digits, the same where all settings are, secrets aside: benchmarks say under which they ran."""
    rows = catalogue(type(settings))
    told = [f"{name}={getattr(settings, name)!r}" for name, row in rows.items() if not row.secret]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


def inspect(section: str, model: type, flags: Flags, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """One object per setting: `name`, `value`, `shown` (for people), `origin`. Secrets have no value.

    Raises UsageError, ConfigError.
    """
    loaded: Loaded[Any] = load(model, flags, environ, section=section)
    return [
        {
            "name": f"{section}.{row.flag}",
            "value": None if row.secret else getattr(loaded.settings, name),
            "shown": row.shown(getattr(loaded.settings, name)),
            "set": bool(getattr(loaded.settings, name)) if row.secret else loaded.given(name),
            "origin": str(loaded.origins[name]),
        }
        for name, row in catalogue(model).items()
    ]
