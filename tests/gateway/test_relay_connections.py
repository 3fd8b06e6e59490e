"""Connections: pooled and reused towards workers, long-lived and bounded towards clients (design.md §3)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from infera_cli.config.settings import ServeSettings
from infera_cli.gateway.options import Timeouts
from infera_cli.gateway.overdue import ROUND_TRIP
from tests.gateway.conftest import CALM, Serve, Setup
from tests.support import raw
from tests.support.replies import JSON, LAST, SSE, answer, chunk, event, head, unary, word
from tests.support.stub import Reply, Seen, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_worker_connections_are_reused(solo: Setup) -> None:
    """Twenty requests, one after the other, need one connection, whatever the framing of the answers."""
    before = len(solo.u1.relayed)
    solo.u1.script = lambda seen: (
        unary({}) if len(seen.connection.requests) % 2 else [head(200, [*JSON, ("Transfer-Encoding", "chunked")]),
                                                             chunk(b"{}"), LAST])
    async with await raw.Client.connect(solo.url) as client:
        for _ in range(20):
            await client.post()
            assert (await client.response()).status == 200
    assert len(solo.u1.relayed) - before <= 1


async def test_a_worker_that_says_close_is_not_reused(solo: Setup) -> None:
    """`Connection: close` of a worker ends that connection."""
    solo.u1.always(answer(200, b"{}", [*JSON, ("Connection", "close")]))
    for _ in range(3):
        assert (await raw.post(solo.url)).status == 200
    assert len({id(seen.connection) for seen in solo.u1.calls}) == 3


@pytest.mark.parametrize("ending", [Step.CLOSE, Step.RESET])
async def test_r022_pooled_connection_closed_by_worker_is_retried(solo: Setup, ending: Step) -> None:
    """A reused connection that ends before any answer byte is nobody's fault: the request goes out once more."""
    def script(seen: Seen) -> Reply:
        return unary({}) if seen.connection.requests[0] is seen else [ending]

    solo.u1.script = script
    async with await raw.Client.connect(solo.url) as client:
        for _ in range(10):
            await client.post(body=b'{"n":1}')
            assert (await client.response()).status == 200
    answered = [seen for seen in solo.u1.calls if seen.connection.requests[0] is seen]
    assert len(answered) >= 5
    assert all(seen.body == b'{"n":1}' for seen in solo.u1.calls)
    assert (await solo.server.replica("u1"))["ready"]


async def test_r022_a_worker_that_drops_idle_connections_loses_no_request(solo: Setup) -> None:
    """With a worker that closes idle sockets just when the next request comes, every answer is 200, run once."""
    solo.u1.idle = 0.05
    async with await raw.Client.connect(solo.url) as client:
        for _ in range(40):
            await client.post()
            assert (await client.response()).status == 200
            await asyncio.sleep(0.0505)
    assert sum(seen.sent > 0 for seen in solo.u1.calls) == 40


async def test_r022_idle_connections_are_given_up_before_vllm_would() -> None:
    """An idle worker connection is kept for less than the 5 s after which vLLM closes it."""
    assert Timeouts().worker_idle < 5


async def test_r022_a_fresh_connection_that_ends_unanswered_is_not_retried_there(solo: Setup) -> None:
    """Only a reused connection gets the second chance: with one worker a fresh failure is 502."""
    solo.u1.close_after_reply = True
    assert (await raw.post(solo.url)).status == 200          # leaves nothing in the pool
    solo.u1.calls.clear()
    solo.u1.always([Step.RESET])
    assert (await raw.post(solo.url)).status == 502
    assert len(solo.u1.calls) == 1


async def test_r022_a_crash_at_work_on_a_reused_connection_is_a_fault(serve: Serve) -> None:
    """What ends a reused connection later than an idle one would have ended was executing: no second run for free."""
    setup = await serve(1, "--request-max-retries", "0", "--breaker-failure-threshold", "0")
    assert (await raw.post(setup.url)).status == 200
    setup.u1.calls.clear()
    setup.u1.always([ROUND_TRIP + 0.1, Step.RESET])
    assert (await raw.post(setup.url)).status == 502
    assert len(setup.u1.calls) == 1
    assert (await setup.server.metrics())['infera_worker_faults_total{worker_id="u1",reason="broken"}'] == 1


async def test_r022_a_crash_at_work_is_a_counted_retry(serve: Serve) -> None:
    """With another worker and a retry left it goes there, as from a fresh connection."""
    setup = await serve(2, *CALM)
    headers = await setup.pin(setup.u1)
    setup.u1.always([ROUND_TRIP + 0.1, Step.RESET])
    assert (await raw.post(setup.url, headers=headers)).status == 200
    assert setup.runs() == (1, 1)
    samples = await setup.server.metrics()
    assert sum(value for name, value in samples.items() if name.startswith("infera_retries_total")) == 1
    assert samples['infera_worker_faults_total{worker_id="u1",reason="broken"}'] == 1


async def test_r023_client_connections_live_for_a_minute_by_default(serve: Serve) -> None:
    """With no setting given an idle connection is used again after 60 s, and is closed at its limit, not before."""
    setup = await serve(1)
    gate, limit = setup.server._server.gate, ServeSettings().keep_alive_timeout

    def idle_for(seconds: float) -> None:
        for connection in list(gate.connections):
            connection.sweep(gate.clock() + seconds)

    async with await raw.Client.connect(setup.url) as client:
        assert (await client.get("/health")).status == 200
        assert all(connection.timeout_keep_alive_task is None for connection in gate.connections)
        idle_for(60)
        await client.post()
        assert (await client.response()).status == 200
        idle_for(limit - 1)
        await client.post()
        assert (await client.response()).status == 200
        idle_for(limit + 1)
        assert await client.ended() == b""


async def test_r023_keep_alive_is_honoured(serve: Serve) -> None:
    """A connection is usable within --keep-alive-timeout of its last answer and closed soon after it."""
    setup = await serve(1, "--keep-alive-timeout", "1")
    async with await raw.Client.connect(setup.url) as client:
        assert (await client.get("/health")).status == 200
        await asyncio.sleep(0.6)
        await client.post()
        assert (await client.response()).status == 200
        since = monotonic()
        await client.ended(within=4)
        assert 0.9 < monotonic() - since < 2


async def test_r023_health_and_relay_share_a_connection(solo: Setup) -> None:
    """GET /health and relayed requests alternate on one client connection."""
    async with await raw.Client.connect(solo.url) as client:
        for _ in range(3):
            assert (await client.get("/health")).status == 200
            await client.post()
            assert (await client.response()).status == 200


@pytest.mark.parametrize("count", [500, 1200])
async def test_r025_many_streams_at_once(solo: Setup, count: int) -> None:
    """The worker sees all streams at the same time, all end with 200, and the server lives."""
    pid, release = solo.server.pid, asyncio.Event()
    opening = [head(200, [*SSE, ("Transfer-Encoding", "chunked")]) + chunk(event(word("a")))]
    solo.u1.always([*opening, release, chunk(event(word("b", "stop"))), LAST])
    heads: list[float] = []

    async def stream() -> bool:
        async with await raw.Client.connect(solo.url) as client:
            since = monotonic()
            await client.post(body={"stream": True})
            await client.head(within=30)
            heads.append(monotonic() - since)
            if len(heads) == count:
                release.set()
            return (await client.rest(within=30)).whole

    assert all(await asyncio.gather(*(stream() for _ in range(count))))
    assert solo.u1.most == count
    assert solo.server.running
    assert solo.server.pid == pid
    if count == 500:
        assert sorted(heads)[int(0.99 * count)] < 4


async def headers_of(url: str, fields: list[tuple[str, str]]) -> tuple[int, bool]:
    """The status for a request with these headers, and whether the connection was closed."""
    async with await raw.Client.connect(url) as client:
        await client.send(raw.request("POST", raw.CHAT, b"{}", fields))
        response = await client.response()
        if response.status == 200:
            return 200, False
        await client.ended(within=5)
        return response.status, True


async def test_r026_header_limits_are_stated_ones(serve: Serve) -> None:
    """10 KiB in one field passes; 256 KiB, or 5,000 fields, are 431 and a closed connection, and memory stays."""
    setup = await serve(1, process=True)
    assert await headers_of(setup.url, [("X-Big", "a" * 10_240)]) == (200, False)
    before = resident(setup.server.pid)
    for _ in range(5):
        assert await headers_of(setup.url, [("X-Big", "a" * (256 << 10))]) == (431, True)
        assert await headers_of(setup.url, [(f"X-{n}", "1") for n in range(5000)]) == (431, True)
    assert resident(setup.server.pid) - before < 20 << 20
    assert (await raw.post(setup.url)).status == 200


async def test_r026_an_endless_head_is_cut_off(serve: Serve) -> None:
    """A head that never ends, in one field or in the request line, is refused at the limit, not stored."""
    setup = await serve(1, process=True)
    await raw.post(setup.url)
    before = resident(setup.server.pid)
    for start in (b"POST /v1/chat/completions HTTP/1.1\r\nX-Endless: ", b"POST /"):
        async with await raw.Client.connect(setup.url) as client:
            await client.send(start)
            for _ in range(256):
                await client.send(b"a" * 65536)
            assert (await client.response()).status == 431
            await client.ended()
    assert resident(setup.server.pid) - before < 8 << 20
    assert len(setup.u1.calls) == 1


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def descriptors(pid: int) -> int:
    """Open file descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_r149_descriptors_do_not_leak(serve: Serve) -> None:
    """With at most 256 descriptors, 3,000 requests and probes ten times a second leak none."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    setup = await serve(1, "--health-interval", "0.1", wrap=limited, process=True)
    closing = [*JSON, ("Connection", "close")]
    setup.u1.script = lambda seen: answer(200, b"{}", closing if len(seen.body) % 2 else JSON)
    await raw.post(setup.url)
    baseline, worst, concurrency = descriptors(setup.server.pid), 0, 10

    async def many() -> None:
        nonlocal worst
        async with await raw.Client.connect(setup.url) as client:
            for n in range(300):
                await client.post(body=b"{" + b" " * (n % 2) + b"}")
                assert (await client.response()).status == 200
                worst = max(worst, descriptors(setup.server.pid) if n % 10 == 0 else 0)

    await asyncio.gather(*(many() for _ in range(concurrency)))
    assert worst <= baseline + concurrency + 20
    assert "Too many open files" not in "\n".join(setup.server.log)


async def test_b17_proxies_of_the_environment_are_ignored(serve: Serve) -> None:
    """HTTP_PROXY and friends divert neither traffic nor probes."""
    dead = "http://127.0.0.1:9"
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
    setup = await serve(1, "--health-interval", "0.1", process=True,
                        env={**dict.fromkeys(names, dead), "NO_PROXY": "", "no_proxy": ""})
    assert (await raw.post(setup.url)).status == 200
    async with asyncio.timeout(5):
        while not any(seen.head.path == "/health" for seen in setup.u1.probes):  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.02)
    assert (await setup.server.health())["replicas_ready"] == 1


async def test_b19_an_ipv6_worker_is_reached_and_bracketed(serve: Serve) -> None:
    """A replica on ::1 is served, its Host and its url have brackets."""
    setup = await serve(1, hosts=["::1"])
    assert (await raw.post(setup.url)).status == 200
    assert setup.u1.calls[0].get("host") == f"[::1]:{setup.u1.port}"
    assert (await setup.server.replica("u1"))["url"] == f"http://[::1]:{setup.u1.port}"


async def test_a_worker_that_talks_unasked_is_not_trusted_again(solo: Setup) -> None:
    """Bytes after a complete answer do not become the next one."""
    stray = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstray!"
    solo.u1.then([*unary({"n": 1}), stray], [*unary({"n": 2}), 0.05, stray])
    for n in (1, 2):
        response = await raw.post(solo.url)
        assert (response.status, response.json()) == (200, {"n": n})
    await asyncio.sleep(0.1)
    assert (await raw.post(solo.url)).body == b'{"ok": true}'


STRAYS = {
    "another answer": unary({"n": 1})[0] + unary({"n": 2})[0],
    "nonsense": unary({"n": 1})[0] + b"xx",
    "nonsense after a last answer": answer(200, b'{"n": 1}', [*JSON, ("Connection", "close")])[0] + b"xx",
    "nonsense after chunks": head(200, [*JSON, ("Transfer-Encoding", "chunked")]) + chunk(b'{"n": 1}') + LAST + b"xx",
    "the end of chunks that there may not be": head(204, [("Transfer-Encoding", "chunked")]) + LAST,
    "a body that there may not be": head(204, [("Content-Length", "2")]) + b"{}",
}


@pytest.mark.parametrize("kind", STRAYS)
async def test_what_follows_a_complete_answer_in_the_same_read_does_not_spoil_it(serve: Serve, kind: str) -> None:
    """It is as in a later read: the answer is whole, no fault is counted, and the connection is not used again."""
    setup = await serve(1, "--breaker-failure-threshold", "0")
    setup.u1.always([STRAYS[kind]])
    async with await raw.Client.connect(setup.url) as client:
        for _ in range(2):
            await client.post()
            response = await client.response(within=5)
            assert response.whole
            assert response.body == (b"" if response.status == 204 else b'{"n": 1}')
    assert len({id(seen.connection) for seen in setup.u1.calls}) == 2
    assert not [name for name in await setup.server.metrics() if name.startswith("infera_worker_faults_total{")]


REASONS = {
    "an upgrade nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "a transfer coding other than chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
}


@pytest.mark.parametrize("why", REASONS)
async def test_the_log_says_why_an_answer_was_not_taken(
    serve: Serve, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The sentence is ours where the parser has none."""
    setup = await serve(1, "--breaker-failure-threshold", "0")
    setup.u1.always([REASONS[why], Step.CLOSE])
    assert (await raw.post(setup.url)).status == 502
    assert [record for record in caplog.records if f"not HTTP: {why}" in record.getMessage()]


GARBAGE = [b"hello\r\n\r\n", b"HTTP/1.1 banana\r\n\r\n", b"\x00" * 64, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
           b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n",
           b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}1",
           b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]


@pytest.mark.parametrize("words", GARBAGE)
async def test_a_worker_that_does_not_speak_http_is_502(solo: Setup, words: bytes) -> None:
    """Nonsense instead of an answer is the worker's fault: 502 with an error object, nothing of it shown."""
    solo.u1.always([words, Step.CLOSE])
    response = await raw.post(solo.url)
    assert response.status == 502
    assert response.json()["error"]["message"]
    assert response.get("x-session-id")
    await solo.server.settled()
