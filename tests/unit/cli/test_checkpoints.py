"""`reclaim checkpoints` against a stand-in controller, and `export` on a real store."""

from __future__ import annotations

import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.errors import NotPermitted, Refused
from slurm_reclaim.model.catalogue import (
    Errand,
    Listed,
    Listing,
    Pin,
    Shown,
    StoreAnswer,
    StoredPart,
    parse_checkpoint_ref,
)
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session
from tests.parts.store.stored import ID, commit, new_store

from .conftest import Shell
from .stand_in import Controller

NAME = "cluster/12.2001.1700000000"
PIN = Pin(NAME, 1, True, "olga", 1700000500.0, "audit")
ONE = Listed(
    NAME, 1, "12", "ali\x1bce", 2001, "HIBERNATED", 1700000300.0, 2 << 20, 1 << 30, "n1", "idle",
    keeps="it is pinned", pins=(PIN,),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12", (12, "", -1)),
        (" 12/3 ", (12, "", 3)),
        (NAME, (12, NAME, -1)),
        (f"{NAME}/0", (12, NAME, 0)),
        ("a/b/12.2001.17", (12, "a/b/12.2001.17", -1)),
    ],
)
def test_how_a_checkpoint_is_named(text: str, found: tuple[Any, ...]) -> None:
    ref = parse_checkpoint_ref(text)
    assert (ref.job_id, ref.session, ref.restarts) == found


@pytest.mark.parametrize(
    "text", ["", "x", "12.batch", "12_4", "12/x", "/3", "12/-1", "../../etc/1"]
)
def test_what_names_none(shell: Shell, controller: Controller, text: str) -> None:
    assert shell("checkpoints", "show", text).exit_code in (2, 28)
    assert controller.asked == []


def test_list(shell: Shell, controller: Controller) -> None:
    listing = Listing(1700000600.0, "n1", (ONE,), total=3 << 30, orphans=1 << 30)
    controller.answers["GET", "/v1/checkpoints"] = [listing]
    result = shell("checkpoints", "list")
    assert result.exit_code == 0, result.output
    assert f"{NAME}/1  ali\ufffdce  HIBERNATED" in result.output
    assert "olga" in result.output
    assert "3.0 GiB in the store, 1.0 GiB of unknown sessions" in result.output
    (found,) = shell.json("checkpoints", "list")["checkpoints"]
    assert (found["restarts"], found["alone"], found["expires"]) == (1, 1 << 30, None)


def test_show_names_files_and_what_shares_them(shell: Shell, controller: Controller) -> None:
    parts = (StoredPart("index", 10), StoredPart("packs/0-1.pack", 99, (0, 2)))
    controller.answers["POST", "/v1/checkpoints/show"] = [Shown(ONE, parts)]
    result = shell("checkpoints", "show", "12")
    assert "by olga (operator)" in result.output
    assert "packs/0-1.pack  99     0, 2" in result.output
    assert controller.asked[-1][2] == {"checkpoint": "12"}
    assert shell.json("checkpoints", "show", "12")["parts"][1]["also"] == [0, 2]


def test_pin_and_unpin(shell: Shell, controller: Controller) -> None:
    controller.answers["POST", "/v1/checkpoints/pin"] = [PIN]
    controller.answers["POST", "/v1/checkpoints/unpin"] = [(PIN,)]
    assert shell.json("checkpoints", "pin", "12/1", "--reason", "audit")["admin"] is True
    assert controller.asked[-1][2] == {"checkpoint": "12/1", "reason": "audit"}
    assert "no longer pinned by olga" in shell("checkpoints", "unpin", "12/1").output
    controller.answers["POST", "/v1/checkpoints/unpin"] = [NotPermitted("pinned by an operator")]
    assert shell("checkpoints", "unpin", "12/1").exit_code == 26


def test_verify_waits_and_names_all_that_differs(shell: Shell, controller: Controller) -> None:
    controller.answers["POST", "/v1/checkpoints/verify"] = [Errand("a1")]
    done = Errand("a1", True, answer=StoreAnswer(differs=("x is missing", "y is not what")))
    controller.answers["GET", "/v1/checkpoints/errands/a1"] = [Errand("a1"), Errand("a1"), done]
    result = shell("checkpoints", "verify", "12")
    assert result.exit_code == 50
    assert "x is missing" in result.output
    assert "y is not what" in result.output
    controller.answers["GET", "/v1/checkpoints/errands/a1"] = [Errand("a1", True)]
    assert shell("checkpoints", "verify", "12").exit_code == 0
    failed = Errand("a1", True, error="there is no committed checkpoint")
    controller.answers["GET", "/v1/checkpoints/errands/a1"] = [failed]
    assert shell("checkpoints", "verify", "12").exit_code == 40


def test_expire(shell: Shell, controller: Controller) -> None:
    done = Errand("b2", True, answer=StoreAnswer(freed=5 << 20, deleted=(1,)))
    controller.answers["POST", "/v1/checkpoints/expire"] = [done]
    assert "5.0 MiB freed" in shell("checkpoints", "expire", "12/1").output
    assert shell.json("checkpoints", "expire", "12/1") == {"deleted": [1], "bytes": 5 << 20}


def test_abandon(shell: Shell, controller: Controller) -> None:
    id = parse_session_id(NAME)
    session = Session(id, "alice", "nb", "phys", "gpu", "normal", State.HIBERNATED, "", 0.0)
    controller.answers["POST", "/v1/checkpoints/abandon"] = [replace(session, checkpoint=2)]
    assert "restored from checkpoint 2" in shell("checkpoints", "abandon", "12/3").output
    assert shell.json("checkpoints", "abandon", "12/3") == {"job": "12", "checkpoint": 2}
    controller.answers["POST", "/v1/checkpoints/abandon"] = [session]
    assert "starts it over" in shell("checkpoints", "abandon", "--start-over", "12/3").output
    controller.answers["POST", "/v1/checkpoints/abandon"] = [Refused("n1 answers")]
    assert shell("checkpoints", "abandon", "12/3").exit_code == 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root exports")
def test_export(shell: Shell, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    commit(store, 0, ["0-1.pack"])
    commit(store, 1, ["0-1.pack", "1-1.pack"])
    with shell.config.open("a") as file:
        file.write(f'[store]\npath = "{store.root}"\nkeys = "{tmp_path}/store.keys"\n')
    target = tmp_path / "7.tar"
    found = shell.json("checkpoints", "export", "7", str(target))
    assert (found["checkpoint"], found["bytes"]) == (f"{ID}/1", target.stat().st_size)
    with tarfile.open(target) as tar:
        assert f"{ID.folder}/packs/1-1.pack" in tar.getnames()
    assert shell("checkpoints", "export", "7/5", str(tmp_path / "b")).exit_code == 25
    assert shell("checkpoints", "export", "8", str(tmp_path / "b")).exit_code == 25
    assert shell("checkpoints", "export", "7", str(target)).exit_code == 40
