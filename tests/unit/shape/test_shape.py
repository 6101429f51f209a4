"""The form of the code: sizes, layers, names. The tree is read as text, nothing is imported."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
    "config": ("config", "errors"),
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


def imports(path: Path) -> Iterator[str]:
    """Absolute names; `from a import b` counts as a.b, so that submodules are seen."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> Iterator[str]:
    for name in imports(path):
        if name.startswith("slurm_reclaim."):
            yield name.removeprefix("slurm_reclaim.")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli").glob("*.py")), ids=name_of)
def test_command_files_stay_short(path: Path) -> None:
    limit = COMMAND_LINES if "@click.command" in path.read_text() else MODULE_LINES
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", sorted((ROOT / "spank").rglob("*.[ch]")), ids=name_of)
def test_c_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= C_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_names_say_what_is_inside(path: Path) -> None:
    for part in path.relative_to(ROOT).with_suffix("").parts:
        assert not FORBIDDEN_NAMES.search(part), part


@pytest.mark.parametrize("path", [p for p in MODULES if layer_of(p) in LAYERS], ids=name_of)
def test_layers_point_one_way(path: Path) -> None:
    allowed = LAYERS[layer_of(path)]
    wrong = [
        name
        for name in ours(path)
        if name != "__version__"
        and not any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)
    ]
    assert wrong == []


@pytest.mark.parametrize("path", [p for p in MODULES if layer_of(p) in BARE], ids=name_of)
def test_the_inner_layers_need_nothing_but_the_standard_library(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imports(path)}
    assert tops - set(sys.stdlib_module_names) - {"slurm_reclaim", "__future__"} == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_programs_name_adapters(path: Path) -> None:
    if layer_of(path) not in MAY_NAME_ADAPTERS:
        assert [name for name in ours(path) if name.startswith("adapters")] == []


def test_nothing_was_overlooked() -> None:
    assert len(MODULES) > 20
    assert {"model", "config", "cli"} <= {layer_of(p) for p in MODULES}
