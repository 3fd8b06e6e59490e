"""The settings page of the reference, written from the declarations (style.md 28)."""

from __future__ import annotations

from infera_cli.config.catalogue import Setting, catalogue
from infera_cli.config.later import LATER
from infera_cli.config.settings import SECTIONS

_HEAD = """# Settings

Written by `make docs` from the declarations in `src/infera_cli/config/settings.py`; do not edit.

Each setting is looked for in this order, and `infera config show --origin` says which place spoke:

1. its flag,
2. its variable,
3. the table `[serve]` or `[client]` of `./infera.toml`,
4. the same table of `$XDG_CONFIG_HOME/infera/config.toml` (`~/.config/infera/config.toml`),
5. its default.

In a file the name is the flag's without the two dashes, e.g. `session-ttl = 300`. Times are seconds and may
end in `ms`, `s`, `m` or `h`; sizes are bytes and may end in `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB` (in a
file, in quotes). A repeated flag is a list in a file and words separated by spaces in its variable. A switch
is `true` or `false`. An unknown name or a value that cannot be used stops the program.
"""

_TAIL = """## Known, and not in this version

These flags are recognised and refused with exit status 2:

"""

_WHO = {
    "serve": "`infera serve`: the table `[serve]`",
    "launch": "`infera launch`: the table `[launch]`",
    "client": "`infera workers`, `requests`, `explain`: the table `[client]`",
}


def settings_page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for section, model in SECTIONS.items():
        parts.append(f"## {_WHO[section]}\n")
        rows = list(catalogue(model).values())
        groups = dict.fromkeys(row.group for row in rows)
        parts.extend(_group(group, [row for row in rows if row.group == group]) for group in groups)
    return "\n".join([*parts, _TAIL + "\n".join(f"- `--{flag}`" for flag in LATER)]) + "\n"


def _group(group: str, rows: list[Setting]) -> str:
    lines = [f"### {group}\n", "| flag | variable | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_row(row) for row in rows)]) + "\n"


def _row(row: Setting) -> str:
    flag = " ".join(["--" + row.flag, row.kind.metavar]).strip()
    also = "".join(f", `--{alias}`" for alias in row.aliases)
    names = ", ".join(f"`{name}`" for name in row.kind.choices())
    choices = f" One of {names}." if names else ""
    return f"| `{flag}`{also} | `{row.env}` | {row.shown(row.default)} | {row.help}{choices} |"
