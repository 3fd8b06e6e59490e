"""Compiles the modules that every request runs through (docs/decisions/0009).

The sources stay the only truth: what is compiled is the same Python, by mypyc, from the same files. With
INFERA_COMPILE=0, or without a C compiler, the wheel holds the sources alone and everything works, more slowly. An
editable install is never compiled, so that an edit counts at once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOT = (
    "events.py",
    "fleet/member.py",
    "fleet/pools.py",
    "fleet/registry.py",
    "fleet/roster.py",
    "gateway/answer.py",
    "gateway/channel.py",
    "gateway/dispatch.py",
    "gateway/gate.py",
    "gateway/identity.py",
    "gateway/kv/dispatch.py",
    "gateway/marks.py",
    "gateway/memory_guard.py",
    "gateway/overdue.py",
    "gateway/random_bytes.py",
    "gateway/record.py",
    "gateway/relay.py",
    "gateway/scheduling.py",
    "gateway/translation/answer.py",
    "gateway/translation/relay.py",
    "gateway/trip.py",
    "gateway/upstream/fetch.py",
    "gateway/upstream/head.py",
    "gateway/upstream/http.py",
    "gateway/upstream/receiver.py",
    "protocol/chunks.py",
    "protocol/headers.py",
    "protocol/long_texts.py",
    "protocol/peek.py",
    "protocol/prompt_text.py",
    "protocol/repeat.py",
    "protocol/sse.py",
    "routing/adaptive.py",
    "routing/batches.py",
    "routing/catalogue.py",
    "routing/cost.py",
    "routing/health.py",
    "routing/journey.py",
    "routing/kv/active.py",
    "routing/kv/aware.py",
    "routing/kv/targets.py",
    "routing/ledger.py",
    "routing/nodes.py",
    "routing/pickers.py",
    "routing/pipeline.py",
    "routing/policies/least_loaded.py",
    "routing/policies/power_of_two.py",
    "routing/policies/random_choice.py",
    "routing/policies/round_robin.py",
    "routing/policies/session.py",
    "routing/prefix/identity.py",
    "routing/prefix/index.py",
    "routing/prefix/orphans.py",
    "routing/prefix/slot.py",
    "routing/prompt.py",
    "routing/queue.py",
    "routing/reader.py",
    "routing/residency.py",
    "routing/scheduler.py",
    "routing/sessions.py",
    "routing/types.py",
    "routing/window.py",
    "routing/work.py",
    "simulator/batch.py",
    "simulator/cache.py",
    "simulator/engine.py",
    "simulator/fleet.py",
    "simulator/router.py",
    "telemetry/access_log.py",
    "telemetry/metrics.py",
    "telemetry/recorder.py",
    "telemetry/series.py",
    "telemetry/usage.py",
    "tokens/memo.py",
    "workload/answer.py",
    "workload/sse.py",
)

_MYPY = """[mypy]
mypy_path = {src}
namespace_packages = true
explicit_package_bases = true
ignore_missing_imports = true
cache_dir = {folder}/mypy
"""


class CompileHotPath(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is put together; `version` is `editable` or `standard`."""
        if self.target_name != "wheel" or version == "editable" or os.environ.get("INFERA_COMPILE") == "0":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="infera-build-"))
        try:
            built = compiled(Path(self.root), self._folder)
        except (Exception, SystemExit) as error:
            self.app.display_warning(f"infera is installed uncompiled, which works but is slower: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(built)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after the wheel was written."""
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)


def compiled(root: Path, folder: Path) -> dict[str, str]:
    """Compile HOT into `folder`; path of each library → where it goes in the wheel."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    source = root / "src"
    (folder / "mypy.ini").write_text(_MYPY.format(src=source, folder=folder))
    before = Path.cwd(), list(sys.argv)
    os.chdir(source)
    try:
        modules = [f"infera_cli/{name}" for name in HOT]
        extensions = mypycify(
            [f"--config-file={folder / 'mypy.ini'}", *modules],
            opt_level="3",
            target_dir=str(folder / "c"),
            group_name="infera_cli",
        )
        distribution = Distribution({"name": "infera-cli", "ext_modules": extensions})
        command = distribution.get_command_obj("build_ext")
        command.build_lib = str(folder / "lib")
        command.build_temp = str(folder / "temp")
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before[0])
        sys.argv[:] = before[1]
    library = folder / "lib"
    return {str(path): str(path.relative_to(library)) for path in library.rglob("*.so")}
