"""Pages that are made from the code are up to date, and hand-written ones speak of what exists."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import click
import pytest

from slurm_reclaim.cli.main import reclaim

ROOT = Path(__file__).parents[3]
RENDERED = runpy.run_path(str(ROOT / "docs/render.py"))["RENDERED"]


@pytest.mark.parametrize("name", sorted(RENDERED))
def test_rendered_files_are_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == RENDERED[name](), "stale: run make docs"


def options(command: click.Command) -> set[str]:
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")}


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    context = click.Context(reclaim)
    for name in reclaim.list_commands(context):
        command = reclaim.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {sub}": c for sub, c in command.commands.items()}
        else:
            found[name] = command
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_option_is_documented(name: str) -> None:
    page = (ROOT / "docs/commands.md").read_text()
    section = re.search(rf"^## `reclaim {name}\b.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, f"docs/commands.md has no section for reclaim {name}"
    missing = {o for o in options(commands()[name]) if o not in section[0]}
    # What is the same everywhere is said once, at the top of the page.
    assert missing <= {"--json", "--wait", "--no-wait", "--timeout"}


def test_documented_commands_exist() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    named = set(re.findall(r"^## `reclaim ([a-z]+(?: [a-z]+)?)", page, re.MULTILINE))
    assert named == set(commands())


def test_no_summary_is_cut_in_the_lists_of_commands() -> None:
    context = click.Context(reclaim, terminal_width=80)
    groups = [reclaim, *(reclaim.get_command(context, n) for n in reclaim.list_commands(context))]
    for group in groups:
        if isinstance(group, click.Group):
            listed = group.get_help(click.Context(group, info_name="reclaim", terminal_width=78))
            assert "..." not in listed.replace("[ARGS]...", ""), listed


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [t for t in targets if not (ROOT / "docs" / t).exists()] == []


def test_every_blocker_is_explained() -> None:
    code = "".join(p.read_text() for p in (ROOT / "slurm_reclaim").rglob("*.py"))
    names = set(re.findall(r'Blocker\(\s*"([a-z-]+)"', code))
    names |= set(re.findall(r'": \("([a-z-]+)",', code))
    assert len(names) > 10
    page = (ROOT / "docs/troubleshooting.md").read_text()
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_installed_files_exist() -> None:
    page = (ROOT / "docs/install.md").read_text()
    for name in re.findall(r"install (?:-D )?-m 0644 ((?:etc|systemd)/\S+)", page):
        assert (ROOT / name).exists(), name
