"""The engines that can be launched, a file each."""

from __future__ import annotations

from infera_cli.launch.engines import atom, custom, pypto, sglang, sim, vllm
from infera_cli.launch.engines.engine import DEVICE_VARIABLES, ONE_SEED, Engine, Start

__all__ = ["DEVICE_VARIABLES", "ENGINES", "ONE_SEED", "Engine", "Start"]

ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in (pypto, vllm, sglang, atom, sim, custom)
}
