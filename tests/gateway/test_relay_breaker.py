"""Whom a failure is counted against, and what an open breaker does (infera-wire §4.9; rulings 2)."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import Serve
from tests.support import raw
from tests.support.replies import SSE, error, head
from tests.support.stub import Reply, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

BROKEN = error(500, {"error": {"message": "oops"}})


async def test_r100_a_worker_that_resets_everything_is_left_alone(serve: Serve) -> None:
    """Fifty requests are served although one worker resets each; it is tried five times at most, and shown."""
    setup = await serve(2, "--health-interval", "0.2", "--breaker-cooldown", "30")
    setup.u1.always([Step.RESET])
    statuses = [(await raw.post(setup.url)).status for _ in range(50)]
    assert statuses == [200] * 50
    assert 1 <= len(setup.u1.calls) <= 5
    workers = (await raw.get(setup.url, "/v1/workers")).body + (await raw.get(setup.url, "/health")).body
    assert b'"open"' in workers


async def test_s31_a_5xx_is_retried_elsewhere_and_feeds_the_breaker(serve: Serve) -> None:
    """Three 500s in a row open the breaker of that worker; nobody sees one."""
    setup = await serve(2, "--breaker-cooldown", "30", "--router-policy", "round-robin")
    setup.u1.always(BROKEN)
    for _ in range(20):
        assert (await raw.post(setup.url)).status == 200
    assert len(setup.u1.calls) == 3


@pytest.mark.parametrize("status", [400, 404, 409, 422])
async def test_s32_a_4xx_returns_at_once_and_is_nobodys_fault(serve: Serve, status: int) -> None:
    """4xx is neither retried nor counted: ten of them leave the breaker closed."""
    setup = await serve(2, "--breaker-cooldown", "30")
    for worker in setup.workers:
        worker.always(error(status, {"error": "you"}))
    for _ in range(10):
        assert (await raw.post(setup.url)).status == status
    assert setup.runs() == (5, 5)


async def test_s34_a_4xx_is_no_recovery(serve: Serve) -> None:
    """A worker that alternates 500 and 400 trips its breaker at the third 500."""
    setup = await serve(1, "--breaker-cooldown", "30", "--request-max-retries", "0")
    setup.u1.then(BROKEN, error(400, {}), BROKEN, error(400, {}))
    assert [(await raw.post(setup.url)).status for _ in range(4)] == [500, 400, 500, 400]
    assert b'"open"' not in (await raw.get(setup.url, "/v1/workers")).body
    setup.u1.then(BROKEN)
    await raw.post(setup.url)
    assert b'"open"' in (await raw.get(setup.url, "/v1/workers")).body


async def test_s38_a_head_alone_is_no_success(serve: Serve) -> None:
    """200 and then a reset, without one body byte, does not launder a worker that failed before."""
    setup = await serve(1, "--breaker-cooldown", "30", "--request-max-retries", "0")
    only_head: Reply = [head(200, [*SSE, ("Transfer-Encoding", "chunked")]), 0.02, Step.RESET]
    setup.u1.then(BROKEN, BROKEN, only_head, BROKEN)
    for stream in (False, False, True, False):
        try:
            await raw.post(setup.url, body={"stream": stream})
        except (AssertionError, ConnectionResetError):
            assert stream
    assert b'"open"' in (await raw.get(setup.url, "/v1/workers")).body


async def test_one_request_that_fails_everywhere_opens_no_two_breakers(serve: Serve) -> None:
    """Faults count once per request and worker (rulings 2)."""
    setup = await serve(2, "--breaker-failure-threshold", "2", "--breaker-cooldown", "30")
    for worker in setup.workers:
        worker.always(BROKEN)
    assert (await raw.post(setup.url)).status == 500
    assert b'"open"' not in (await raw.get(setup.url, "/v1/workers")).body


async def test_a_request_that_fails_everywhere_opens_one_breaker(serve: Serve) -> None:
    """Both workers break off without an answer: the first is blamed, the second is not (rulings 2)."""
    setup = await serve(2, "--breaker-failure-threshold", "1", "--breaker-cooldown", "30")
    for worker in setup.workers:
        worker.always([Step.RESET])
    response = await raw.post(setup.url)
    assert response.status == 502
    rows = (await raw.get(setup.url, "/health")).json()["replicas"]
    assert sorted(row["breaker"] for row in rows) == ["closed", "open"]


async def test_who_failed_last_is_who_is_named(serve: Serve) -> None:
    """When retries run out, the record, the error and the journal say the worker that was asked last; retries are 1."""
    setup = await serve(2, "--breaker-failure-threshold", "0")
    for worker in setup.workers:
        worker.always([Step.RESET])
    said = (await raw.post(setup.url)).json()["error"]["message"]
    (record,) = (await raw.get(setup.url, "/v1/admin/requests")).json()["requests"]
    assert record["worker"] in said
    assert record["retries"] == 1


async def test_what_nobody_could_take_again_is_no_retry(serve: Serve) -> None:
    """One worker breaks off, the other is drained: nothing was sent twice, so no retry is counted."""
    setup = await serve(2, "--breaker-failure-threshold", "0")
    setup.u1.always([Step.RESET])
    assert (await raw.post(setup.url, "/v1/admin/workers/u2/drain")).status == 200
    assert (await raw.post(setup.url)).status == 502
    (record,) = (await raw.get(setup.url, "/v1/admin/requests")).json()["requests"]
    assert (record["worker"], record["retries"]) == ("u1", 0)
