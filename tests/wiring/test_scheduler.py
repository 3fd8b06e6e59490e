"""What of a scheduler file counts under a policy that is not the scheduler's."""

from __future__ import annotations

from typing import cast

import pytest

from infera_cli.config.settings import ServeSettings
from infera_cli.events import Bus
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.gate import Gate
from infera_cli.protocol.scheduler_file import parse
from infera_cli.routing.catalogue import policy
from infera_cli.routing.sessions import Pins
from infera_cli.wiring.scheduler import Scheduler

NODES = b"""
nodes:
  - {id: n1, hardware: a100-80g, backend: vllm, endpoint: "http://127.0.0.1:1", models: [m]}
"""


def said(caplog: pytest.LogCaptureFixture, more: bytes) -> list[str]:
    """What is said at the start under `kv-aware`."""
    bus = Bus()
    scheduler = Scheduler(
        ServeSettings(), policy("kv-aware"), Registry(bus, pins=Pins(60.0)), parse(NODES + more, path="f.yaml"))
    nobody = cast("Gate", None)     # under this policy the gate is not touched
    scheduler.install(nobody, bus)
    assert scheduler.scheduling is None
    return [record.getMessage() for record in caplog.records if record.name == "infera.scheduler"]


def test_kv_aware_says_which_limits_of_the_file_it_does_not_keep(caplog: pytest.LogCaptureFixture) -> None:
    """Caps and batches belong to the scheduler's queue; a policy without it does not leave them out in silence."""
    told = said(caplog, b"batching: {max_batch_size: 4, strategy: static}\n")
    assert len(told) == 1
    assert "max_batch_size and strategy static of the file do not count" in told[0]


def test_kv_aware_over_a_file_without_limits_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to warn of."""
    assert said(caplog, b"") == []
