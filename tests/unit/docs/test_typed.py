"""What the pages and the program's own hints tell people to type is there: commands and options,
settings, files, make's verbs, parts of the installation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_reclaim.config.schema import Config
from slurm_reclaim.model import extras
from tests.unit.docs.test_rendered import commands, options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests").rglob("README.md")),
    ROOT / "spank/README.md",
]
ALIASES = {"pause": "hibernate", "resume": "restore"}
SOURCES = {path: path.read_text() for path in (ROOT / "slurm_reclaim").rglob("*.py")}
FOLDERS = "docs etc slurm_reclaim spank systemd tests adapters parts policy stages unit cluster"

pages = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def typed(page: Path) -> Iterator[str]:
    """Lines of blocks, and what stands in backquotes."""
    text = page.read_text()
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"^    (.*)$", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", text)


def wrong_command(line: str) -> str:
    """What of a line that begins with reclaim, or has it after a sign, isn't there."""
    known = commands()
    groups = {name.split()[0] for name in known if " " in name}
    for words in re.findall(r"(?:^|[(|$;] ?)reclaim ([a-z][^|;&#)]*)", line):
        first, *rest = words.split()
        first = ALIASES.get(first, first)
        name = f"{first} {rest[0]}" if rest and f"{first} {rest[0]}" in known else first
        if words in groups:
            continue
        if name not in known:
            return f"reclaim {name}"
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", words):
            if option not in options(known[name]) | {"--help"}:
                return f"reclaim {name} {option}"
    return ""


@pages
def test_commands_exist_with_the_options_shown(page: Path) -> None:
    assert [w for line in typed(page) if (w := wrong_command(line))] == []


def test_commands_in_hints_exist() -> None:
    shown = [c for text in SOURCES.values() for c in re.findall(r"`(reclaim [^`\n{]+)`", text)]
    assert len(shown) > 10
    assert [w for line in shown if (w := wrong_command(line))] == []


def test_a_wrong_command_is_noticed() -> None:
    assert wrong_command("reclaim hibernat 1")
    assert wrong_command("x | reclaim list --al")
    assert wrong_command("reclaim checkpoints look 1")
    assert not wrong_command("reclaim checkpoints pin 1 --reason x   # reclaim nothing")


@pages
def test_settings_exist(page: Path) -> None:
    """`section.key`; where the section is none of ours it is something else, a file's name."""
    config = Config()
    wrong = []
    for line in typed(page):
        for section, key in re.findall(r"^([a-z]+)\.([a-z_]+)(?=$|[ =,])", line):
            place = getattr(config, section, None)
            # safety.md names code in the same way
            if place is not None and key not in (*place.__dataclass_fields__, "py", "commit"):
                wrong.append(line)
    assert wrong == []


@pages
def test_files_of_the_repository_exist(page: Path) -> None:
    text = "\n".join(typed(page))
    named = re.findall(rf"(?<![\w/.])(?:{'|'.join(FOLDERS.split())})/[\w./-]*\w", text)
    tops = (ROOT, ROOT / "slurm_reclaim", ROOT / "tests", page.parent)
    ours = [n for n in named if not n.startswith("cluster/1")]  # a session's identity
    assert [n for n in ours if not any((top / n).exists() for top in tops)] == []


@pages
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_pages_named_by_the_program_exist() -> None:
    named = {n for text in SOURCES.values() for n in re.findall(r"docs/[\w-]+\.md", text)}
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def verbs() -> set[str]:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    return set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]


@pages
def test_verbs_of_make_exist(page: Path) -> None:
    if page.parent.name in ("spank", "gpu"):
        pytest.skip("these have a Makefile of their own")
    named = {verb for line in typed(page) for verb in re.findall(r"^make ([a-z]\S*)", line)}
    assert named <= verbs()


def test_make_help_names_every_verb() -> None:
    told = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert verbs() - {"help"} <= set(re.findall(r"[a-z-]+", told.stdout))
    assert all(len(line) < 100 for line in told.stdout.splitlines())


def project() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_parts_of_the_installation_exist() -> None:
    texts = [*(p.read_text() for p in PAGES), *SOURCES.values()]
    texts.append((ROOT / "slurm-reclaim.spec").read_text())
    asked = {a for t in texts for a in re.findall(r"'(?:\.|slurm-reclaim)\[([a-z0-9,]+)\]'", t)}
    asked |= {a for t in texts for a in re.findall(r"extras\.install\('([a-z0-9', ]+)'\)", t)}
    named = {name.strip(" '") for each in asked for name in each.split(",")}
    assert {"gpu", "cuda", "s3", "gcs"} <= named <= set(project())


def test_the_hint_installs_into_the_environment_of_the_program() -> None:
    told = extras.install("gpu", "cuda")
    assert told.endswith("/bin/pip install 'slurm-reclaim[gpu,cuda]'")
    assert Path(told.split()[0]).parent == Path(sys.prefix, "bin")
