"""A deletion that is cut off anywhere, and two at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.store import collection as module
from slurm_reclaim.adapters.store.collection import Collection
from slurm_reclaim.errors import StoreUnavailable
from tests.parts.store.kept import OTHER, staged, three
from tests.parts.store.stored import ID, new_store

EFFECTS = ("rename", "unlink", "rmdir", "fsync")


def dies_at(number: int, act: Callable[[], object]) -> bool:
    """Runs `act` in a process that is killed right before its effect `number` (twice that: right
    after); whether it died."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    count = 0
    try:
        for name in EFFECTS:
            real = getattr(os, name)

            def effect(*words: Any, real: Any = real, **named: Any) -> Any:
                nonlocal count
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
                outcome = real(*words, **named)
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
                return outcome

            setattr(module.os, name, effect)
        act()
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    ("going", "ended", "left"),
    [((0,), False, [1, 2]), ((0, 1), False, [2]), ((1,), True, [0, 2]), ((0, 1, 2), True, [])],
)
def test_dying_anywhere_loses_nothing_and_is_taken_up(
    tmp_path: Path, going: tuple[int, ...], ended: bool, left: list[int]
) -> None:
    points = 0
    for number in range(1000):
        place = tmp_path / str(number)
        place.mkdir()
        store = new_store(place)
        three(store)
        staged(store, ID, 3)
        collection = Collection(store, "n1")
        died = dies_at(number, lambda: collection.expire(ID, going, ended=ended))  # noqa: B023
        for restarts in store.committed(ID):
            if restarts in left:
                assert collection.verify(ID, restarts) == [], f"died at {number}"
            else:
                assert restarts in going
        assert set(left) <= set(store.committed(ID)), f"died at {number}"
        assert collection.verify(OTHER, 0) == []
        # A second collector, whatever the first has left; it may still find the old catalogue.
        Collection(store, "n2").expire(ID, going, ended=ended)
        assert store.committed(ID) == left, f"died at {number}"
        found, _ = collection.catalogue()
        mine = [one for one in found if one.session == str(ID)]
        if left:
            named = {name for each in mine[0].checkpoints for name in each.packs}
            stray = {pack.name for pack in mine[0].packs} - named
            assert stray == set(), f"died at {number}"
            assert not [n for n in mine[0].leftovers if n.startswith(".expired")]
        else:
            assert mine == [], f"died at {number}"
        if not died:
            break
        points += 1
    assert points >= 15


@pytest.mark.parametrize(("going", "ended", "left"), [((0, 1), False, [2]), ((0, 1, 2), True, [])])
def test_two_collectors_at_once(
    tmp_path: Path, going: tuple[int, ...], ended: bool, left: list[int]
) -> None:
    """Each may find the other's work half done and say so, but nothing that stays is touched, and
    one more look ends it."""
    for number in range(15):
        place = tmp_path / str(number)
        place.mkdir()
        store = new_store(place)
        three(store)
        children = []
        for who in ("n1", "n2", "n3"):
            child = os.fork()
            if not child:
                with suppress(StoreUnavailable):
                    Collection(store, who).expire(ID, going, ended=ended)
                os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        collection = Collection(store, "n4")
        collection.expire(ID, going, ended=ended)
        assert store.committed(ID) == left
        assert [collection.verify(ID, n) for n in left] == [[] for _ in left]
        assert collection.verify(OTHER, 0) == []
        assert store.session_dir(ID).exists() is bool(left)


def test_an_expired_checkpoint_is_never_half_of_one(tmp_path: Path) -> None:
    """Whatever still counts as committed is whole, at every moment of its deletion."""
    for number in range(1000):
        place = tmp_path / str(number)
        place.mkdir()
        store = new_store(place)
        three(store)
        collection = Collection(store, "n1")
        died = dies_at(number, lambda: collection.expire(ID, (0, 1, 2), ended=True))  # noqa: B023
        if store.session_dir(ID).exists():
            for restarts in store.committed(ID):
                assert collection.verify(ID, restarts) == [], f"died at {number}"
        if not died:
            return
    raise AssertionError("it never came to its end")
