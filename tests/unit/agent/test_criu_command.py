"""CRIU's command lines: what must never be missing from them."""

import re
from pathlib import Path

import pytest

from slurm_reclaim.adapters.criu import command
from slurm_reclaim.adapters.criu.program import ENVIRONMENT, LIBEXEC, Entry

ROOT = Path(__file__).parents[3]
LINES = [command.dump("criu", 300, 5, 1 << 20), command.restore("criu", 5, [(7, "/a.out")])]


@pytest.mark.parametrize("words", LINES, ids=["dump", "restore"])
def test_no_plugin_and_no_configuration_of_the_node_is_loaded(words: list[str]) -> None:
    """CRIU's plugin for CUDA would lock and restore by itself, and hide that it failed."""
    assert words[words.index("-L") + 1] == str(LIBEXEC)
    assert "--no-default-config" in words
    assert not {name for name in ENVIRONMENT if name.startswith("CRIU")}


def test_no_library_of_ours_lies_where_criu_looks_for_plugins() -> None:
    """It loads every *.so there."""
    makefile = (ROOT / "spank/Makefile").read_text()
    places = re.findall(r"\S*(?:LIBEXECDIR|libexec)\S*", makefile)
    assert "$(DESTDIR)$(LIBEXECDIR)/plugin" in places
    assert not [place for place in places if place.endswith(".so")]


def test_a_dump_is_not_ended_by_want_of_memory_or_a_broken_pipe() -> None:
    """It is a tracer; a restore must not be one: what comes back would inherit it."""
    assert "--tracer" in Entry(tracer=True).argv()
    assert "--tracer" not in Entry().argv()
