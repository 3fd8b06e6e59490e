"""SIGHUP to a real process that is busy: what its replica file says now holds, and nobody is cut off (R151)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import LAST, chunk, chunked, words
from tests.support.stub import Step, StubWorker

pytestmark = pytest.mark.asyncio(loop_scope="session")

BRISK = ("--health-interval", "0.2")
STREAM = {"stream": True}


class Stream:
    """A stream of two words on the worker of a session, the second of which comes on `go_on`."""

    def __init__(self, setup: Setup, worker: StubWorker, session: dict[str, str]) -> None:
        self.setup, self.worker, self.session = setup, worker, session
        self.go_on = asyncio.Event()

    async def begin(self, stack: AsyncExitStack) -> None:
        """Return when the first word is here."""
        first, *rest = words(2)
        self.worker.then([*chunked([first], end=False), self.go_on, *(chunk(one) for one in rest), LAST])
        self.client = await stack.enter_async_context(await raw.Client.connect(self.setup.url))
        await self.client.post(body=STREAM, headers=self.session)
        assert (await self.client.head()).get("x-infera-worker") == self.worker.name
        assert await anext(self.client.body()) == first

    async def ends_well(self) -> bool:
        """Whether the rest comes, all of it."""
        self.go_on.set()
        response = await self.client.rest()
        return response.whole and response.body == b"".join(words(2))


async def served_by(setup: Setup, headers: dict[str, str] | None = None) -> str:
    """Who answers a request that goes well."""
    response = await raw.post(setup.url, headers=headers)
    assert response.status == 200
    return response.get("x-infera-worker") or ""


async def test_r151_sighup_changes_what_the_file_changed_and_leaves_the_rest(serve: Serve) -> None:
    """Within 2 s one replica is gone and one new; the third keeps counters and pins, and both streams end well."""
    setup = await serve(2, *BRISK, process=True)
    gone, kept, pid = setup.u1, setup.u2, setup.server.pid
    await setup.ready()
    async with AsyncExitStack() as stack:
        new = await stack.enter_async_context(StubWorker("u3"))
        of_gone, of_kept = await setup.pin(gone), await setup.pin(kept)
        streams = [Stream(setup, gone, of_gone), Stream(setup, kept, of_kept)]
        for stream in streams:
            await stream.begin(stack)
        before = await setup.server.replica("u2")
        assert before["outstanding"] == 1

        setup.server.write([kept, new])
        await setup.server.reload()
        async with asyncio.timeout(2):
            while [one["name"] for one in (await setup.server.health())["replicas"]] != ["u2", "u3"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await setup.server.replica("u2") == before

        assert await served_by(setup, of_kept) == "u2"
        assert await served_by(setup, of_gone) in {"u2", "u3"}
        assert {await served_by(setup) for _ in range(6)} == {"u3"}  # u2 is the busier one
        assert len(gone.calls) == 1
        assert [await stream.ends_well() for stream in streams] == [True, True]
        await setup.server.settled()
        assert (await setup.server.replica("u2"))["routed"] == before["routed"] + len(kept.calls) - 1
    assert (setup.server.running, setup.server.pid) == (True, pid)


async def off_the_file(setup: Setup, stack: AsyncExitStack) -> tuple[Stream, asyncio.Task[raw.Response]]:
    """A stream that delivers and a request that waits, both on u1, which the file no longer names."""
    session = await setup.pin(setup.u1)
    stream = Stream(setup, setup.u1, session)
    await stream.begin(stack)
    setup.u1.then([Step.HANG])
    waiting = asyncio.create_task(raw.post(setup.url, headers=session))
    await setup.u1.called(2)
    setup.server.write([setup.u2])
    await setup.server.reload()
    return stream, waiting


async def test_r110_what_waits_on_a_dead_replica_moves_when_the_file_forgets_it(serve: Serve) -> None:
    """It does not even answer a probe: its unanswered request is served elsewhere within 5 s, its stream may end."""
    setup = await serve(2, "--health-interval", "60")
    await setup.ready()
    setup.u1.health = [Step.HANG]
    async with AsyncExitStack() as stack:
        stream, waiting = await off_the_file(setup, stack)
        assert (await asyncio.wait_for(waiting, 5)).get("x-infera-worker") == "u2"
        assert await stream.ends_well()


async def test_what_waits_on_a_live_replica_stays_when_the_file_forgets_it(serve: Serve) -> None:
    """It still answers probes, so it is left to end what it has, answered or not."""
    setup = await serve(2, "--health-interval", "60")
    await setup.ready()
    async with AsyncExitStack() as stack:
        asked = len(setup.u1.probes)
        stream, waiting = await off_the_file(setup, stack)
        async with asyncio.timeout(5):
            while len(setup.u1.probes) == asked:  # noqa: ASYNC110 - a probe has no event for us
                await asyncio.sleep(0.02)
        assert await stream.ends_well()
        assert (waiting.done(), setup.u2.calls) == (False, [])
        waiting.cancel()


BAD = [
    ('{"replicas": [{"host": "a", "port": 1},]}', "line 1"), ('{"replicas": []}', "names no engine"),
    ('{"replicas": [{"host": "a", "port": "1"}]}', r'replicas\[0\]: "port"'), (None, "cannot be read"),
]  # fmt: skip


async def test_r151_sighup_with_a_bad_file_changes_nothing(serve: Serve) -> None:
    """One ERROR with line or key for each; replicas, pins and the running stream stay, and requests are served."""
    setup = await serve(2, *BRISK, process=True)
    await setup.ready()
    session = await setup.pin(setup.u1)
    stream = Stream(setup, setup.u1, session)
    async with AsyncExitStack() as stack:
        await stream.begin(stack)
        for content, says in BAD:
            setup.server.file.unlink()
            if content is not None:
                setup.server.file.write_text(content)
            await setup.server.reload()
            await setup.server.said(f"ERROR .*refused and the previous one stays.*{says}", within=2)
            health = await setup.server.health()
            assert [one["name"] for one in health["replicas"]] == ["u1", "u2"]
            assert health["replicas_ready"] == 2
            assert await served_by(setup, session) == "u1"
            if content is None:
                setup.server.write(setup.workers)
        assert sum("ERROR" in line for line in setup.server.log) == len(BAD)
        await setup.server.reload()
        await setup.server.said("was read again", within=2)
        assert await served_by(setup, session) == "u1"
        assert await stream.ends_well()
