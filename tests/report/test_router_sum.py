"""Whether the parts between client, router and worker are said to add up."""

from __future__ import annotations

import pytest

from infera_cli.report import rows
from infera_cli.workload.measures import Tally
from tests.workload.samples import sample

WHOLE = {"queue": 0.02, "pick": 0.001, "upstream": 0.02}
SHORT = {"pick": 0.001, "upstream": 0.02}


@pytest.mark.parametrize(("timings", "said"), [
    ([WHOLE, WHOLE], True), ([SHORT, SHORT], True),
    ([WHOLE, SHORT], False),                                        # the mean of the queue is of half the answers
    ([{**WHOLE, "upstream": 3.0}] * 2, False),                      # more than the time to the headers
    ([{**WHOLE, "render": 0.005}] * 2, True), ([{**WHOLE, "render": 0.02}, WHOLE], False),
    ([{**WHOLE, "total": 0.5}] * 2, False),                         # holds the others
])
def test_the_sum_is_said_where_it_is_one(timings: list[dict[str, float]], said: bool) -> None:
    """Parts that only some answers have, or that overlap, leave the table without the sentence."""
    found = [sample(n, 0.2, (0.1,) * 3, connected=n + 0.01, head=n + 0.12, timing=of) for n, of in enumerate(timings)]
    assert bool(rows.router_sum(Tally().update(found).figures())) is said
