"""The form of the code: sizes, layers, names. The tree is read as text, nothing is imported."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "slurm_reclaim"
MODULES = sorted(PACKAGE.rglob("*.py"))

MODULE_LINES = 400
FUNCTION_LINES = 60
C_LINES = 400
COMMAND_LINES = 120

# Their names say nothing of what is inside.
FORBIDDEN_NAMES = re.compile(r"(^|_)(util|utils|helper|helpers|common|misc|manager|handler)(_|$)")

# Layer -> what it may import of ours (prefixes).
LAYERS = {
    "model": ("model", "errors"),
    "policy": ("model", "errors", "policy", "config.schema", "ports"),
    "stages": ("model", "errors", "policy", "stages", "ports", "config"),
    "config": ("config", "errors", "model"),
    "checks": ("checks", "config", "errors", "model"),
    "adapters": ("adapters", "model", "errors", "ports", "config", "policy"),
}
# Layers without third-party libraries.
BARE = ("model", "policy", "stages", "ports.py", "errors.py")
MAY_NAME_ADAPTERS = ("daemon", "cli", "adapters")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


STATEMENTS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)


@cache
def statements(path: Path) -> tuple[ast.stmt, ...]:
    """Its functions and imports, at whatever depth; none is below an expression."""
    found: list[ast.stmt] = []
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, STATEMENTS):
            found.append(node)
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            below = getattr(node, name, ())
            left += below if isinstance(below, list) else ()
    return tuple(found)


@cache
def imports(path: Path) -> frozenset[str]:
    """Absolute names; `from a import b` counts as a.b, so that submodules are seen."""
    names: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def ours(path: Path) -> Iterator[str]:
    for name in sorted(imports(path)):
        if name.startswith("slurm_reclaim.") and name != "slurm_reclaim.__version__":
            yield name.removeprefix("slurm_reclaim.")


def too_long(paths: Iterable[Path], limit: int) -> list[str]:
    lengths = ((path, len(path.read_text().splitlines())) for path in paths)
    return [f"{name_of(path)}: {lines} lines" for path, lines in lengths if lines > limit]


def test_modules_stay_small() -> None:
    assert too_long(MODULES, MODULE_LINES) == []


def test_functions_stay_small() -> None:
    wrong = []
    for path in MODULES:
        for node in statements(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    wrong.append(f"{name_of(path)}: {node.name}: {lines} lines")
    assert wrong == []


def test_commands_stay_short() -> None:
    commands = [p for p in (PACKAGE / "cli").glob("*.py") if "@click.command" in p.read_text()]
    assert len(commands) >= 6
    assert too_long(commands, COMMAND_LINES) == []


def test_c_files_stay_small() -> None:
    assert too_long(sorted((ROOT / "spank").rglob("*.[ch]")), C_LINES) == []


def test_names_say_what_is_inside() -> None:
    parts = {part for p in MODULES for part in p.relative_to(ROOT).with_suffix("").parts}
    assert [part for part in sorted(parts) if FORBIDDEN_NAMES.search(part)] == []


def test_layers_point_one_way() -> None:
    wrong = []
    for path in MODULES:
        allowed = LAYERS.get(layer_of(path))
        if allowed is None:
            continue
        for name in ours(path):
            if not any(name == prefix or name.startswith(prefix + ".") for prefix in allowed):
                wrong.append(f"{name_of(path)} imports {name}")
    assert wrong == []


def test_the_inner_layers_need_nothing_but_the_standard_library() -> None:
    known = {*sys.stdlib_module_names, "slurm_reclaim"}
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        if layer_of(path) in BARE
        for name in sorted(imports(path))
        if name.partition(".")[0] not in known
    ]
    assert wrong == []


def test_only_the_programs_name_adapters() -> None:
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        if layer_of(path) not in MAY_NAME_ADAPTERS
        for name in ours(path)
        if name.startswith("adapters")
    ]
    assert wrong == []


def test_the_agent_is_small() -> None:
    """It lies in the memory of every node: what it needs now and then is imported then."""
    seen: set[str] = set()
    left = ["slurm_reclaim.daemon.reclaim_agent"]
    top_level: set[str] = set()
    while left:
        name = left.pop()
        path = ROOT.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
            else:
                continue
            top_level |= {found.partition(".")[0] for found in names}
            left += [found for found in names if found.startswith("slurm_reclaim.")]
    assert "slurm_reclaim.adapters.store.cipher" in seen
    assert not top_level & {"aiohttp", "cryptography", "rich", "sqlalchemy"}


def test_nothing_was_overlooked() -> None:
    assert len(MODULES) > 20
    assert set(LAYERS) <= {layer_of(p) for p in MODULES}


def test_parts_need_no_procps() -> None:
    """A small machine lacks it, and `kill` with it. The plugin's tests install it (make spank)."""
    places = [*(ROOT / "tests/parts").rglob("*.py"), *(ROOT / "tests/gpu").rglob("*.py")]
    runs = re.compile(r"\[\s*\"(kill|pgrep|pkill|ps|top|free|uptime|w)\"")
    wrong = [name_of(p) for p in places if "spank" not in p.parts and runs.search(p.read_text())]
    assert wrong == []
