"""A setting is declared once; this is the row it is declared with.

Settings are fields of frozen dataclasses whose metadata is a `Setting`; name, type, default are the field's.
Flags, `INFERA_*` names, the reference page, completion and checking all read the same row, and nothing heavy
is imported to do so (design.md §5; style.md 19).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from infera_cli.config.kinds import Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one setting besides its type. `name` is the field, `flag` the same with dashes.

    `aliases` are other accepted spellings of the flag; `unset` says what it means that the default is None.
    """

    help: str
    group: str
    kind: Kind
    secret: bool = False
    aliases: tuple[str, ...] = ()
    unset: str = "none"
    name: str = ""
    default: Any = None

    @property
    def flag(self) -> str:
        """The long flag without its two dashes."""
        return self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """The environment variable (rulings 21)."""
        return "INFERA_" + self.name.upper()

    @property
    def envs(self) -> tuple[str, ...]:
        """All environment variables that set it, the first one first."""
        return (self.env, *("INFERA_" + alias.replace("-", "_").upper() for alias in self.aliases))

    def shown(self, value: Any) -> str:
        """`value` for people; a secret only says whether it is set."""
        if self.secret:
            return "set" if value else "not set"
        return self.unset if value is None else self.kind.show(value)


def setting(
    default: T, kind: Kind, group: str, text: str, *,
    secret: bool = False, aliases: tuple[str, ...] = (), unset: str = "none",
) -> T:
    """Declare one setting: a dataclass field with this default and a `Setting` as metadata."""
    row = Setting(text, group, kind, secret, aliases, unset)
    declared: T = field(default=default, repr=not secret, metadata={"setting": row})
    return declared


def catalogue(model: type[Any]) -> dict[str, Setting]:
    """All settings of a settings class by field name, in order of declaration."""
    return {row.name: row for row in _rows(model)}


def _rows(model: type) -> Iterator[Setting]:
    for declared in fields(model):
        row: Setting = declared.metadata["setting"]
        default = None if declared.default is MISSING else declared.default
        yield replace(row, name=declared.name, default=default)
