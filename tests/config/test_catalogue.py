"""One declaration per setting."""

from __future__ import annotations

from dataclasses import fields

import pytest

from infera_cli.config.catalogue import catalogue
from infera_cli.config.later import LATER
from infera_cli.config.settings import SECTIONS, ServeSettings
from infera_cli.fleet.probe import NODE_PROBE_TIMEOUT, probe_timeout


def test_every_field_is_a_setting() -> None:
    """Name, flag, variable, sentence and group of every field are known."""
    for model in SECTIONS.values():
        assert list(catalogue(model)) == [declared.name for declared in fields(model)]
        for row in catalogue(model).values():
            assert row.env == "INFERA_" + row.flag.replace("-", "_").upper()
            assert row.help.endswith(".")
            assert row.group


@pytest.mark.parametrize("section", SECTIONS)
def test_every_default_passes_its_own_check(section: str) -> None:
    """A default never needs an excuse."""
    for row in catalogue(SECTIONS[section]).values():
        if row.default is not None:
            row.kind.check(row.default)


def test_flags_of_later_versions_are_not_also_settings() -> None:
    """A flag is either in this version or refused."""
    assert not {row.flag for row in catalogue(ServeSettings).values()} & set(LATER)


def test_secrets_say_only_whether_they_are_set() -> None:
    """No secret can be shown by accident."""
    row = catalogue(ServeSettings)["admin_token"]
    assert (row.shown("hush"), row.shown(None)) == ("set", "not set")


def test_the_help_of_the_time_out_tells_what_a_probe_gets() -> None:
    """Its least, and what the nodes of a scheduler file get instead."""
    told = catalogue(ServeSettings)["connect_timeout"].help
    assert f"{probe_timeout(0.1):g} s at least" in told
    assert f"with --config exactly {NODE_PROBE_TIMEOUT:g} s" in told
