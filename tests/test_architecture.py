"""Who may know whom, read from the imports (design.md §2), and what else every file keeps to (style.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "infera_cli"
EVERYTHING = {
    "errors", "events", "blocks", "protocol", "routing", "simulator", "workload", "tokens", "telemetry",
    "fleet", "gateway", "launch", "simengine", "loadtest", "report", "client", "config", "wiring",
}

# A name stands for a package or module and all below it.
MAY_KNOW: dict[str, set[str]] = {
    "errors": set(),
    "events": set(),
    "blocks": set(),
    "protocol": {"errors", "blocks"},
    "routing": {"errors", "blocks"},
    "simulator": {"routing", "blocks", "errors"},
    "workload": {"protocol", "errors"},
    "tokens": {"blocks", "errors"},
    "telemetry": {"events", "errors"},
    "fleet": {
        "routing.types", "routing.health", "routing.ledger", "routing.prefix",
        "protocol", "blocks", "events", "errors",
    },
    "gateway": {"protocol", "routing", "tokens", "events", "errors"},
    "launch": {"protocol", "fleet.registration", "events", "errors"},
    "simengine": {"simulator", "protocol", "tokens", "blocks", "errors"},
    "loadtest": {"workload", "protocol", "events", "errors", "tokens"},
    "report": {"workload", "protocol", "events", "errors"},
    "client": {"protocol", "tokens", "blocks", "errors"},
    "config": {"routing.catalogue", "protocol", "errors"},
    "wiring": EVERYTHING - {"wiring"},
    "__main__": {"cli"},
    "cli": {"wiring", "config", "errors"},
}

# What a command drives; imported by `cli` inside the function that drives it.
DRIVEN_BY_CLI = {"client", "launch", "loadtest", "report", "simulator", "simengine", "workload"}

PURE = ("blocks", "protocol", "routing", "simulator", "workload", "launch.plan")
IMPURE_MODULES = {
    "aiohttp", "asyncio", "concurrent", "ctypes", "fcntl", "ftplib", "getpass", "glob", "http.client",
    "httpx", "locust", "logging", "mmap", "multiprocessing", "os", "paramiko", "platform", "random",
    "resource", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib.request", "uuid", "uvicorn", "uvloop",
    "zmq",
}
PURE_PARTS = {  # of a module that also does I/O, these names do none
    "pathlib": {"PurePath", "PurePosixPath"},
    "random": {"Random"},
}
CLOCKS_AND_FILES = {"now", "utcnow", "today", "read_text", "read_bytes", "write_text", "write_bytes"}

HEAVY = {  # none of these may be loaded for `infera --help`
    "asyncio", "fastapi", "httptools", "httpx", "jinja2", "locust", "msgspec", "paramiko",
    "prometheus_client", "pydantic", "pydantic_settings", "ssl", "starlette", "tokenizers", "uvicorn",
    "uvloop", "xxhash", "yaml", "zmq",
}

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 9  # keyword-only ones, and the options of a command, are named where they are given
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK|NotImpl" r"ementedError)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported module, and the name taken from it (None for `import module`)."""

    module: str
    name: str | None
    line: int
    in_function: bool

    @property
    def target(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


def functions_of(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def imports_of(tree: ast.Module) -> Iterator[Import]:
    inside = {id(node) for function in functions_of(tree) for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno, id(node) in inside)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            for alias in node.names:
                yield Import(node.module or "", alias.name, node.lineno, id(node) in inside)


def module_name(path: Path) -> str:
    """Dotted name below infera_cli; '' for the package itself."""
    parts = list(path.relative_to(SRC).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_below(name: str, roots: set[str] | tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def forbidden_knowledge(module: str, found: Import) -> bool:
    """Whether `module` may not know what it imports."""
    if not is_below(found.module, ("infera_cli",)):
        return False
    target = found.target.removeprefix("infera_cli").removeprefix(".")
    package = module.partition(".")[0]
    allowed = MAY_KNOW.get(package, set()) | {package}
    if package == "cli" and found.in_function:
        allowed = allowed | DRIVEN_BY_CLI
    return not is_below(target, allowed) and target != "__version__"


def impurities(tree: ast.Module) -> Iterator[str]:
    """What a pure module must not contain: I/O modules, clocks, global dice, calls that open or print."""
    for found in imports_of(tree):
        parts = PURE_PARTS.get(found.module, set())
        if (is_below(found.module, IMPURE_MODULES) or found.module in PURE_PARTS) and found.name not in parts:
            yield f"line {found.line}: imports {found.target}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"}:
                yield f"line {node.lineno}: calls {node.func.id}()"
            elif isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS_AND_FILES:
                yield f"line {node.lineno}: calls .{node.func.attr}()"


def sources() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def own_python() -> list[Path]:
    return [*sources(), *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def offences(paths: list[Path], rule: Callable[[Path, ast.Module], list[str]]) -> dict[str, list[str]]:
    """What `rule` has to say about each file, by the file's path; files that keep it are left out."""
    found = {str(path.relative_to(ROOT)): rule(path, parse(path)) for path in paths}
    return {path: said for path, said in found.items() if said}


def test_a_module_knows_only_what_its_package_may_know() -> None:
    """Imports between packages follow the table of the design."""

    def rule(path: Path, tree: ast.Module) -> list[str]:
        module = module_name(path)
        return [f"line {f.line}: {f.target}" for f in imports_of(tree) if forbidden_knowledge(module, f)]

    assert offences(sources(), rule) == {}


def test_forbidden_imports_are_seen() -> None:
    """The check itself sees a wrong neighbour, a wrong part of a right one, and an import too early."""
    code = "from infera_cli import errors, gateway\nfrom infera_cli.routing import types, pipeline\n"
    found = [f.target for f in imports_of(ast.parse(code)) if forbidden_knowledge("fleet.probe", f)]
    assert found == ["infera_cli.gateway", "infera_cli.routing.pipeline"]
    code = "import infera_cli.client.api\ndef run():\n    from infera_cli.client import api\n"
    assert [f.line for f in imports_of(ast.parse(code)) if forbidden_knowledge("cli.workers", f)] == [1]


def test_every_package_has_a_row_in_the_table() -> None:
    """A new package is given its place before it is used."""
    packages = {module_name(path).partition(".")[0] for path in sources()} - {"", "__main__"}
    assert packages <= set(MAY_KNOW)


def test_a_pure_module_does_no_io_and_reads_no_clock() -> None:
    """Time and randomness come to the pure packages as arguments."""
    pure = [path for path in sources() if is_below(module_name(path), PURE)]
    assert offences(pure, lambda _path, tree: list(impurities(tree))) == {}


def test_impurities_are_seen() -> None:
    """The check itself sees clocks, dice, sockets and files, and lets a seeded generator pass."""
    code = "import time\nimport socket\nfrom random import Random, choice\nimport pathlib\nopen(x)\nd.now()\n"
    found = [line.partition(":")[0] for line in impurities(ast.parse(code))]
    assert found == [f"line {n}" for n in range(1, 7)]


def test_help_loads_nothing_heavy() -> None:
    """`infera --help` loads none of the packages that a server needs."""
    code = (
        "import sys\n"
        "from infera_cli.cli import main\n"
        "sys.argv = ['infera', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stderr.split())
    assert "infera_cli" in loaded
    assert sorted(loaded & HEAVY) == []


def test_a_file_can_be_held_in_mind() -> None:
    """No file exceeds four hundred lines, no function sixty lines or nine positional parameters."""

    def rule(path: Path, tree: ast.Module) -> list[str]:
        lines = path.read_text(encoding="utf-8").count("\n")
        said = [f"{lines} lines"] if lines > LONGEST_FILE else []
        for f in functions_of(tree):
            if (f.end_lineno or 0) - f.lineno >= LONGEST_FUNCTION:
                said.append(f"line {f.lineno}: {f.name} is long")
            if len(f.args.posonlyargs + f.args.args) > MOST_PARAMETERS and SRC / "cli" not in path.parents:
                said.append(f"line {f.lineno}: {f.name} takes much")
        return said

    assert offences(own_python(), rule) == {}


def test_nothing_is_left_unfinished() -> None:
    """No file holds a note to finish it later."""

    def rule(path: Path, _tree: ast.Module) -> list[str]:
        return UNFINISHED.findall(path.read_text(encoding="utf-8"))

    assert offences(own_python(), rule) == {}


def test_every_test_is_a_sentence_of_the_specification() -> None:
    """Each test says in its docstring what holds."""

    def rule(_path: Path, tree: ast.Module) -> list[str]:
        tests = [f for f in functions_of(tree) if f.name.startswith("test_")]
        return [f.name for f in tests if not ast.get_docstring(f)]

    assert offences(sorted((ROOT / "tests").rglob("test_*.py")), rule) == {}
