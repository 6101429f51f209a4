"""A log of the daemons has a line for each message, whoever chose the names in it."""

from __future__ import annotations

import io
import logging

import pytest

from slurm_reclaim.daemon.logs import OneLine


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\nINFO forged", r"a\nINFO forged"), ("\x1b[2J", r"\x1b[2J"), ("\udcff", r"\udcff"),
     ("plain ü", "plain ü"), ("\u202eback", r"\u202eback")],
)  # fmt: skip
def test_a_name_neither_begins_a_line_nor_drives_a_terminal(name: str, shown: str) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine("%(levelname)s %(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    log.warning("order of %s", name)
    assert written.getvalue() == f"WARNING order of {shown}\n"


def test_a_traceback_keeps_its_lines() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(OneLine("%(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise ValueError("what")
    except ValueError:
        log.exception("plugin socket")
    assert written.getvalue().splitlines()[0] == "plugin socket"
    assert written.getvalue().splitlines()[-1] == "ValueError: what"
