"""The rank in a worker's name, as a caller may write it."""

from __future__ import annotations

import pytest

from infera_cli.gateway.kv.dispatch import rank_in


@pytest.mark.parametrize(("named", "rank"), [
    ("w#dp0", 0), ("w#dp12", 12), ("w", None),
    ("w#dp", None), ("w#dp²", None), ("w#dp" + "9" * 5000, None), (None, None),
])  # fmt: skip
def test_r184_what_is_no_rank_names_none(named: str | None, rank: int | None) -> None:
    """However long it is."""
    assert rank_in(named) == rank
