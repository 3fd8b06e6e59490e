"""A chat template, rendered in a sandbox the way Hugging Face's code does (engines §6.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]

_GIVEN = frozenset({"messages", "tools", "add_generation_prompt"})

_LOOPS_OVER_CONTENT = re.compile(r"for\s+\w+\s+in\s+\w+(?:\.content|\[\s*['\"]content['\"]\s*\])")


class Unrenderable(Exception):
    """The request's tokens cannot be known here; `cause` is a word for counters."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(detail or cause)
        self.cause = cause


class _Generation(Extension):
    """`{% generation %}` marks what an assistant said, for training; its content is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """See Extension."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


class ChatTemplate:
    """One compiled template. `variables` are the special tokens by name (`bos_token` …); `uses` are the names that it
    looks at, besides what every request has."""

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        self.source = source
        self.dated = "strftime_now" in source
        self.knows_developer = "developer" in source
        self.wants_parts = _LOOPS_OVER_CONTENT.search(source) is not None
        self.uses = frozenset(meta.find_undeclared_variables(environment.parse(source))) - _GIVEN
        self._variables = dict(variables)
        self._compiled = environment.from_string(source)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None = None, *, generate: bool = True,
        more: Mapping[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """The prompt's text. `more` are variables of the request. Raises Unrenderable."""
        given = {**self._variables, **(more or {})}
        given.update(messages=messages, tools=tools or None, add_generation_prompt=generate)
        given.setdefault("documents", None)
        try:
            return self._compiled.render(given)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise Unrenderable("template", f"{type(error).__name__}: {error}") from error
        except RecursionError:
            raise Unrenderable("template", "it nests too deep") from None
