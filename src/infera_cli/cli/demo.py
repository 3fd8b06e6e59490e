"""`infera demo`: simulated engines, the real router in front of them, and a few conversations through it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.demo_view import View, live_or_plain
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.values import value_of
from infera_cli.config.kinds import Integer
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import AddressInUse

if TYPE_CHECKING:
    from infera_cli.wiring import Server

app = verb()

Sim = Annotated[str, typer.Option("--sim", metavar="N", help="Simulated engines to start, 1 to 64.")]
Port = Annotated[str | None, typer.Option(
    metavar="PORT", help="Port of the router. [default: 8000, or a free one if taken]")]
Talks = Annotated[str, typer.Option(metavar="N", help="Conversations to hold at once, 1 to 1000.")]
Turns = Annotated[str, typer.Option(metavar="N", help="Turns of each conversation, 1 to 100.")]
Once = Annotated[bool, typer.Option("--once", help="End after the conversations instead of serving on.")]


@app.command(cls=PlainCommand)
def demo(
    *, sim: Sim = "3", conversations: Talks = "6", turns: Turns = "4", once: Once = False, port: Port = None
) -> int:
    """Simulated engines, a router and some traffic; needs no GPU, no model and no configuration.

    Shows who served what, how much of each prompt was cached already, and how long it took; then serves on
    until Ctrl-C, so that you can try it with your own client.
    """
    import uvloop

    engines = _count(sim, "--sim", 64)
    talks, each = _count(conversations, "--conversations", 1000), _count(turns, "--turns", 100)
    server = _bind(engines, None if port is None else value_of(Integer(high=65535), port, "--port"))
    view = live_or_plain(console)
    try:
        view.start(server.url, engines)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_show(server, view, talks, each, once))
    finally:
        view.close()
        server.close()


def _count(text: str, flag: str, most: int) -> int:
    return int(value_of(Integer(low=1, high=most), text, flag))


def _bind(sim: int, port: int | None) -> Server:
    """A router for this machine only; without a wish for a port, a free one when 8000 is taken."""
    from infera_cli.wiring import Server

    def server(number: int) -> Server:
        return Server(ServeSettings(sim=sim, host="127.0.0.1", port=number, access_log=False))

    if port is not None:
        return server(port)
    try:
        return server(8000)
    except AddressInUse:
        return server(0)


async def _show(server: Server, view: View, conversations: int, turns: int, once: bool) -> int:
    """Serve, and once ready send the traffic; the server ends at Ctrl-C, or after the traffic with `once`."""
    ready = asyncio.Event()
    serving = asyncio.create_task(server.serve(lambda _: None, ready.set))
    talking = asyncio.create_task(_talk(server, view, ready, conversations, turns))
    await asyncio.wait({serving, talking}, return_when=asyncio.FIRST_COMPLETED)
    if talking.done() and not server.stopping:
        errors = talking.result()
        view.invite(server.url, stays=not once)
        if once:
            signal.raise_signal(signal.SIGINT)  # the same door as Ctrl-C
    else:
        errors = 0
        talking.cancel()
    await asyncio.gather(serving, talking, return_exceptions=True)
    await serving
    return 1 if once and errors else 0


async def _talk(server: Server, view: View, ready: asyncio.Event, conversations: int, turns: int) -> int:
    """Hold the conversations and show them; how many turns failed."""
    from infera_cli.client.demo import Answered, converse, summarize

    await ready.wait()
    view.ready([(member.spec.id, member.spec.url) for member in server.registry.members()])
    answers: list[Any] = []
    async for step in converse(server.url, conversations=conversations, turns=turns):
        if isinstance(step, Answered):
            answers.append(step)
            view.answered(step)
        else:
            view.asked(step)
    summary = summarize(answers)
    view.end(summary)
    return summary.errors
