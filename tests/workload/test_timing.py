"""What a router says of its time."""

from __future__ import annotations

import pytest

from infera_cli.workload.timing import parse


def test_durations_come_by_name_in_seconds() -> None:
    """Milliseconds in the header, quoted or not, other parameters passed over."""
    assert parse('queue;dur=1.5, pick;desc="x";dur="0.02", cache') == {"queue": 0.0015, "pick": 0.00002}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "-1", "-0.001", "1e300", "soon", ""])
def test_what_is_no_duration_is_passed_over(value: str) -> None:
    """Else it were in the mean of all, and in a file that cannot be read again."""
    assert parse(f"upstream;dur={value}, queue;dur=2") == {"queue": 0.002}
