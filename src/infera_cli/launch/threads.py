"""Blocking work beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def on_thread(work: Callable[[], T]) -> T:
    """`work` on a daemon thread of its own: one that hangs must not keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(results: list[T], fault: BaseException | None) -> None:
        if future.done():
            return
        if fault is not None:
            future.set_exception(fault)
        else:
            future.set_result(results[0])

    def go() -> None:
        results: list[T] = []
        fault: BaseException | None = None
        try:
            results.append(work())
        except BaseException as raised:  # noqa: BLE001 - it goes on in the task that waits
            fault = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, results, fault)

    threading.Thread(target=go, name="infera-launch", daemon=True).start()
    return await future
