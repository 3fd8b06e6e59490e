"""What happens when a worker fails: who is asked next, who is blamed, what the client is told (rulings 2, 4)."""

from __future__ import annotations

import asyncio
import json
from time import monotonic

import pytest

from infera_cli.wiring import server as server_module
from tests.gateway.conftest import CALM, Serve, Setup
from tests.support import raw
from tests.support.replies import JSON, SSE, chunk, chunked, error, head, sse, unary, word, words
from tests.support.stub import Reply, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

BUSY = error(503, {"error": {"message": "busy"}})


async def test_r065_a_session_moves_when_its_worker_is_gone(serve: Serve) -> None:
    """After the pinned worker refuses connections all answers come from one other worker, under the same session."""
    setup = await serve(3)
    session = await setup.pin(setup.u1)
    await setup.u1.die()
    answers = [await raw.post(setup.url, headers=session) for _ in range(11)]
    assert [one.status for one in answers] == [200] * 11
    assert {one.get("x-session-id") for one in answers} == {session["X-Session-Id"]}
    assert len({one.get("x-infera-worker") for one in answers}) == 1


async def test_r068_a_session_stays_where_it_was_served(pair: Setup) -> None:
    """A session whose worker answered 503 once goes on with the worker that took over."""
    session = await pair.pin(pair.u1)
    pair.u1.then(BUSY)
    first = await raw.post(pair.url, headers=session)
    assert (first.status, first.get("x-infera-worker")) == (200, "u2")
    later = [await raw.post(pair.url, headers=session) for _ in range(5)]
    assert {one.get("x-infera-worker") for one in later} == {"u2"}


async def test_r073_the_second_choice_of_a_session_is_always_the_same(serve: Serve) -> None:
    """With slack left 30 requests follow the pin; when its worker is down every one goes to the same other."""
    setup = await serve(3, "--health-interval", "60")
    session = await setup.pin(setup.u1)
    release = asyncio.Event()
    held: Reply = [release, *unary({})]
    setup.u1.then(held, held)
    waiting = [asyncio.create_task(raw.post(setup.url, headers=session)) for _ in range(2)]
    await setup.u1.called(2)
    followed = [await raw.post(setup.url, headers=session) for _ in range(30)]
    assert {one.get("x-infera-worker") for one in followed} == {"u1"}
    release.set()
    await asyncio.gather(*waiting)
    await setup.u1.die()
    moved = [await raw.post(setup.url, headers=session) for _ in range(5)]
    assert len({one.get("x-infera-worker") for one in moved}) == 1


async def test_r101_a_silent_worker_holds_up_only_its_own(serve: Serve) -> None:
    """Requests for the other worker end at once, and /health goes on answering."""
    setup = await serve(2, "--router-policy", "round-robin")
    setup.u1.always([Step.HANG])
    setup.u2.always([0.05, *unary({})])
    since = monotonic()
    tasks = [asyncio.create_task(raw.post(setup.url)) for _ in range(20)]
    done: set[asyncio.Task[raw.Response]] = set()
    while len(done) < 10:
        finished, _ = await asyncio.wait(tasks, timeout=2, return_when=asyncio.FIRST_COMPLETED)
        assert finished
        done |= finished
        tasks = [task for task in tasks if task not in finished]
    assert monotonic() - since < 2
    before = monotonic()
    await setup.server.health()
    assert monotonic() - before < 1
    assert setup.runs() == (10, 10)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_r103a_a_refused_connection_goes_to_the_next(serve: Serve) -> None:
    """Nothing was sent, so the other worker serves it, also with no retries allowed (rulings 2)."""
    setup = await serve(2, "--request-max-retries", "0", "--health-interval", "60")
    session = await setup.pin(setup.u1)
    await setup.u1.die()
    assert (await raw.post(setup.url, headers=session)).get("x-infera-worker") == "u2"
    assert setup.runs() == (0, 1)


async def test_b44_a_dead_worker_costs_at_most_one_request(serve: Serve) -> None:
    """A worker that cannot be reached is out of rotation for the second request; alone, it makes 502, then 503."""
    setup = await serve(1, "--health-interval", "60")
    await setup.u1.die()
    first, second = await raw.post(setup.url), await raw.post(setup.url)
    assert (first.status, second.status) == (502, 503)
    assert "u1" in first.json()["error"]["message"]
    for response in (first, second):
        assert response.get("x-session-id")
    assert (await setup.server.replica("u1"))["ready"] is False


async def test_r103b_a_reset_before_any_answer_is_retried_once(pair: Setup) -> None:
    """Read, then reset: one other worker is asked, and no third run happens."""
    session = await pair.pin(pair.u1)
    pair.u1.close_after_reply = True
    await raw.post(pair.url, headers=session)
    for worker in pair.workers:
        worker.calls.clear()
    pair.u1.always([Step.RESET])
    assert (await raw.post(pair.url, headers=session)).status == 200
    assert pair.runs() == (1, 1)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "unary"])
async def test_r103c_a_reset_after_the_head_is_not_retried(pair: Setup, streamed: bool) -> None:
    """Once a worker has begun to answer nobody else is asked; the client gets a cut answer, a stream with an error."""
    session = await pair.pin(pair.u1)
    fields = [*SSE, ("Transfer-Encoding", "chunked")] if streamed else [*JSON, ("Content-Length", "20")]
    pair.u1.always([head(200, fields), 0.05, Step.RESET])
    response = await raw.post(pair.url, body={"stream": streamed}, headers=session)
    assert (response.status, response.whole) == (200, False)
    told = [json.loads(one) for one in response.events()]
    assert [list(one) for one in told] == [["error"]] * streamed
    assert pair.runs() == (1, 0)


async def test_r103d_an_engines_502_is_retried_once_and_then_relayed(pair: Setup) -> None:
    """A 5xx goes to one other worker; when that fails too the client sees the last answer as it is."""
    session = await pair.pin(pair.u1)
    pair.u1.always(error(502, {"by": "u1"}))
    assert (await raw.post(pair.url, headers=session)).status == 200
    assert pair.runs() == (1, 1)
    pair.u2.always(error(502, {"by": "u2"}))
    response = await raw.post(pair.url, headers=session)
    assert response.status == 502
    assert response.json()["by"] == response.get("x-infera-worker")
    assert sum(pair.runs()) == 4


async def test_r103d_without_retries_a_5xx_is_relayed(serve: Serve) -> None:
    """--request-max-retries 0 passes the first answer on, body and all."""
    setup = await serve(2, "--request-max-retries", "0")
    for worker in setup.workers:
        worker.always(BUSY)
    response = await raw.post(setup.url)
    assert (response.status, response.json()) == (503, {"error": {"message": "busy"}})
    assert sum(setup.runs()) == 1


async def test_r104_when_all_are_busy_the_last_refusal_is_relayed(serve: Serve) -> None:
    """Three workers at 429: the client sees 429 with Retry-After and body; one worker is asked once, two in all."""
    setup = await serve(3)
    for worker in setup.workers:
        worker.always(error(429, {"error": {"message": "slow down"}}, [*JSON, ("Retry-After", "7")]))
    response = await raw.post(setup.url)
    assert (response.status, response.get("retry-after")) == (429, "7")
    assert response.json() == {"error": {"message": "slow down"}}
    assert sum(setup.runs()) <= 2
    assert max(setup.runs()) == 1


async def test_r106_failed_probes_neither_cut_a_stream_nor_empty_the_pool(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes that fail while a stream moves change nothing; once it is over they count, and one success restores."""
    monkeypatch.setattr(server_module, "probe_timeout", lambda _connect: 0.15)
    setup = await serve(1, "--health-interval", "0.1")
    await setup.ready()
    setup.u1.then(chunked(words(70), gap=0.02))
    setup.u1.health = [Step.HANG]

    def given_up() -> int:
        return sum(seen.head.path == "/health" and not seen.sent and seen.ended is not None for seen in setup.u1.probes)

    stream = asyncio.create_task(raw.post(setup.url, body={"stream": True}))
    await setup.u1.called()
    async with asyncio.timeout(10):
        while given_up() < 4:  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.01)
    assert not stream.done()
    assert (await setup.server.health())["replicas_ready"] == 1
    assert (await raw.post(setup.url)).status == 200
    assert not stream.done()
    assert (await stream).body == b"".join(words(70))
    assert stream.result().whole
    await setup.ready(0)
    setup.u1.health = unary({"status": "ok"})
    await setup.ready(1)


async def test_r107_probes_generate_nothing(serve: Serve) -> None:
    """Probes of a worker whose other paths need a key cause no completion and leave it routable."""
    setup = await serve(1, "--health-interval", "0.1")
    setup.u1.listing = error(401, {"error": "key"})
    setup.u1.always(error(401, {"error": "key"}))
    async with asyncio.timeout(10):
        while sum(seen.head.path == "/health" for seen in setup.u1.probes) < 10:  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.05)
    assert setup.u1.calls == []
    assert {seen.head.method for seen in setup.u1.probes} == {"GET"}
    assert (await setup.server.replica("u1"))["ready"]


async def test_r107_a_worker_key_is_sent_in_probes_and_requests(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """--worker-api-key-file opens a worker that needs a key on its probe path too."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("sk-worker\n")
    setup = await serve(1, "--health-interval", "0.1", "--worker-api-key-file", str(key))
    await raw.post(setup.url, headers={"Authorization": "Bearer sk-client"})
    async with asyncio.timeout(10):
        while not setup.u1.probes:  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.05)
    for seen in (*setup.u1.calls, *setup.u1.probes):
        assert seen.get("authorization") == "Bearer sk-worker"


async def test_r110_a_request_moves_when_its_worker_leaves_the_fleet(serve: Serve) -> None:
    """Unanswered requests on a worker whose registration is gone move; a stream that delivers may finish."""
    setup = await serve(2)
    session = await setup.pin(setup.u1)
    release = asyncio.Event()
    setup.u1.then([Step.HANG], [Step.HANG], [*chunked(words(1)[:1], end=False), release,
                                             *(chunk(one) for one in words(2)[1:]), b"0\r\n\r\n"])
    unary_one = asyncio.create_task(raw.post(setup.url, headers=session))
    await setup.u1.called(1)
    silent = asyncio.create_task(raw.post(setup.url, body={"stream": True}, headers=session))
    await setup.u1.called(2)
    async with await raw.Client.connect(setup.url) as client:
        await client.post(body={"stream": True}, headers=session)
        await client.head()
        assert await anext(client.body())
        setup.server.lose("u1")
        async with asyncio.timeout(5):
            assert (await unary_one).get("x-infera-worker") == "u2"
            assert (await silent).get("x-infera-worker") == "u2"
        release.set()
        assert (await client.rest()).whole
    assert [r["name"] for r in (await setup.server.health())["replicas"]] == ["u2"]


async def test_r112_a_drained_worker_gets_no_new_work(serve: Serve) -> None:
    """Drain is idempotent and outlives probes; restore brings the worker back; the last one drained makes 503."""
    setup = await serve(2, "--health-interval", "0.1")

    async def admin(name: str, verb: str) -> int:
        return (await raw.post(setup.url, f"/v1/admin/workers/{name}/{verb}")).status

    assert (await admin("u1", "drain"), await admin("u1", "drain")) == (200, 200)
    await asyncio.sleep(0.35)
    for _ in range(20):
        await raw.post(setup.url)
    assert setup.runs() == (0, 20)
    assert await admin("u1", "restore") == 200
    for _ in range(20):
        await raw.post(setup.url)
    assert 8 <= len(setup.u1.calls) <= 12
    assert await admin("nope", "drain") == 404
    release = asyncio.Event()
    setup.u1.always([release, *unary({})])
    setup.u2.always([release, *unary({})])
    running = asyncio.create_task(raw.post(setup.url))
    while not (setup.u1.open or setup.u2.open):  # noqa: ASYNC110 - either of two workers
        await asyncio.sleep(0.01)
    await admin("u1", "drain")
    await admin("u2", "drain")
    assert (await raw.post(setup.url)).status == 503
    release.set()
    assert (await running).status == 200


async def test_s47_our_error_texts_show_no_internals(serve: Serve) -> None:
    """502 and 503 carry one sentence: no exception names, no file names, no traceback."""
    setup = await serve(1, "--health-interval", "60", "--breaker-failure-threshold", "0")
    setup.u1.then([Step.RESET], [b"nonsense\r\n\r\n", Step.CLOSE])
    bodies = [(await raw.post(setup.url)).body for _ in range(2)]
    await setup.u1.die()
    bodies += [(await raw.post(setup.url)).body for _ in range(2)]
    for body in bodies:
        for leak in (b"Traceback", b"Error:", b".py", b"Errno", b"httptools", b"Exception"):
            assert leak not in body, body


async def test_c10_errors_of_ours_speak_the_dialect_of_the_route(serve: Serve) -> None:
    """OpenAI error objects on OpenAI routes, Anthropic ones on /v1/messages."""
    setup = await serve(1, "--health-interval", "60")
    await setup.u1.die()
    await raw.post(setup.url)
    openai = (await raw.post(setup.url)).json()
    assert {"message", "type"} <= set(openai["error"])
    anthropic = (await raw.post(setup.url, "/v1/messages")).json()
    assert anthropic["type"] == "error"
    assert {"message", "type"} <= set(anthropic["error"])


async def test_too_many_requests_are_429_with_a_hint(serve: Serve) -> None:
    """Above --max-inflight a request is 429 with Retry-After and never reaches a worker."""
    setup = await serve(1, "--max-inflight", "1")
    release = asyncio.Event()
    setup.u1.always([release, *unary({})])
    running = asyncio.create_task(raw.post(setup.url))
    await setup.u1.called()
    refused = await raw.post(setup.url)
    assert refused.status == 429
    assert int(refused.get("retry-after") or 0) >= 1
    assert refused.json()["error"]["message"]
    release.set()
    assert (await running).status == 200
    assert len(setup.u1.calls) == 1


async def test_r008_a_worker_that_dies_mid_stream_stays_ready(pair: Setup) -> None:
    """A stream that breaks does not take its worker out; the next probes decide (replica-router §1.11)."""
    session = await pair.pin(pair.u1)
    pair.u1.always([*sse([word("a")], done=False, end=False), 0.02, Step.RESET])
    await raw.post(pair.url, body={"stream": True}, headers=session)
    assert (await pair.server.replica("u1"))["ready"]


@pytest.mark.parametrize("path", [raw.CHAT, "/v1/messages"])
async def test_r008_a_5xx_that_breaks_off_is_one_fault(serve: Serve, path: str) -> None:
    """Head and broken body are one failure of one request: it counts once against the worker (rulings 2)."""
    setup = await serve(1, *CALM)
    setup.u1.spoken.discard("/v1/messages")
    setup.u1.always([*chunked([b"oh"], fields=JSON, end=False, status=500), Step.RESET])
    await raw.post(setup.url, path, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
    counts = {name: count for name, count in (await setup.server.metrics()).items()
              if name.startswith("infera_worker_faults_total")}
    assert counts == {'infera_worker_faults_total{worker_id="u1",reason="status_500"}': 1}
