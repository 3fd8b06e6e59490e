"""Two real vLLM servers and one router, started once for all tests here; a killed engine is started again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.processes import Engine, Router
from tests.support import tinymodel


@dataclass
class Fleet:
    """The router, and the engines by the names that it knows them by."""

    router: Router
    engines: dict[str, Engine]

    def other(self, name: str) -> Engine:
        """The engine that is not `name`."""
        return next(engine for engine in self.engines.values() if engine.name != name)

    def revive(self) -> None:
        """Start again what is not running, and wait until the router serves with all."""
        down = [engine for engine in self.engines.values() if not engine.alive]
        for engine in down:
            engine.start()
        for engine in down:
            engine.wait_ready()
        self.router.wait_ready(len(self.engines))


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get("VLLM_PYTHON")
    assert python, "these tests need vLLM; `make e2e` installs it and sets VLLM_PYTHON"
    return python


@pytest.fixture(scope="session")
def whole_fleet(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("e2e")
    model = folder / "tiny"
    subprocess.run([vllm_python, str(Path(tinymodel.__file__)), str(model)], check=True, timeout=120)
    engines = {name: Engine(name, vllm_python, model, folder) for name in ("left", "right")}
    fleet = Fleet(Router(list(engines.values()), folder), engines)
    fleet.router.start()
    try:
        yield fleet
    finally:
        for process in (fleet.router, *engines.values()):
            process.stop()


@pytest.fixture
def fleet(whole_fleet: Fleet) -> Fleet:
    """Both engines up and routable, whatever the last test did to them."""
    whole_fleet.revive()
    return whole_fleet
