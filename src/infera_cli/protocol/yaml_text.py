"""YAML as configuration needs it: one document of plain values, and no key twice.

A key that stands twice would silently hide its first value, so it is refused like an unknown one.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.constructor import ConstructorError

from infera_cli.protocol.place import Place


class _Loader(yaml.SafeLoader):
    """Plain values only; no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _value in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConstructorError(None, None, f"a key has to be text, not {key!r}", key_node.start_mark)
            if key in seen:
                raise ConstructorError(None, None, f"{key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(text: bytes, file: Place) -> object:
    """The values in `text`. Raises ConfigError with file, line and column."""
    try:
        return yaml.load(text.decode("utf-8-sig"), _Loader)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError as error:
        raise file.refuse(f"is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1} column {mark.column + 1}" if mark else ""
        raise file.refuse(f"is not valid YAML: {error.problem or error.context}{where}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise file.refuse(f"is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise file.refuse("is not valid YAML: nested too deeply") from None
