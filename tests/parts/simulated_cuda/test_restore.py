"""Onto which cards a restore goes, and what it needs there."""

from __future__ import annotations

import pytest

from tests.parts.simulated_cuda.conftest import GIB, MIB, Asker, Node, Session, card, uuid

THERE = [(uuid(0), uuid(11)), (uuid(1), uuid(10))]


def other_node(node: Node, *lines: str, **facts: int) -> None:
    """Other cards, in another order; minor numbers are of the files."""
    node.says(*lines, card(11, minor=1, **facts), card(10, minor=0, **facts))


@pytest.fixture
def saved(node: Node, ask: Asker) -> Session:
    session = node.session("--mib", "4")
    ask.checkpointed(session)
    return session


def test_onto_other_cards(node: Node, ask: Asker, saved: Session) -> None:
    other_node(node)
    ask.brought_back(saved, THERE)
    lines = saved.next_lines()
    assert [(row[3], row[4]) for row in lines] == [(uuid(11), "ok"), (uuid(10), "ok")]
    ask.checkpointed(saved)
    ask.brought_back(saved)
    assert saved.is_well()


def test_onto_the_same_cards_changed_over(node: Node, ask: Asker, saved: Session) -> None:
    ask.brought_back(saved, [(uuid(0), uuid(1)), (uuid(1), uuid(0))])
    assert [row[3] for row in saved.next_lines()] == [uuid(1), uuid(0)]
    assert saved.is_well()


@pytest.mark.parametrize(
    "pairs",
    [
        THERE[:1],
        [(uuid(0), uuid(11)), (uuid(1), uuid(99))],
        [(uuid(0), uuid(11)), (uuid(1), uuid(11))],
        None,
    ],
    ids=["incomplete", "unknown card", "twice the same", "no map"],
)
def test_a_map_that_does_not_fit(
    node: Node, ask: Asker, saved: Session, pairs: list[tuple[str, str]] | None
) -> None:
    other_node(node)
    assert ask("restore", saved.pid, pairs) == "INVALID_VALUE"
    assert ask.state(saved.pid) == "checkpointed"
    ask.brought_back(saved, THERE)
    assert saved.is_well()


def test_another_model_is_refused(node: Node, ask: Asker, saved: Session) -> None:
    other = card(10, minor=0).replace("Simulated GPU", "Another GPU")
    node.says(card(11, minor=1), other)
    assert ask("restore", saved.pid, THERE) == "INVALID_VALUE"


def test_a_card_that_the_session_may_not_open_is_refused(
    node: Node, ask: Asker, saved: Session
) -> None:
    other_node(node)
    (node.place / "dev" / "nvidia0").unlink()
    assert ask("restore", saved.pid, THERE) == "INVALID_VALUE"


def test_cards_hidden_from_cuda_belong_in_the_map(node: Node, ask: Asker) -> None:
    session = node.session(CUDA_VISIBLE_DEVICES="1")
    assert {row[3] for row in session.lines()} == {uuid(1)}
    ask.checkpointed(session)
    other_node(node)
    assert ask("restore", session.pid, THERE[1:]) == "INVALID_VALUE"
    ask.brought_back(session, THERE)
    assert {row[3] for row in session.next_lines()} == {uuid(10)}


def test_without_room_it_is_lost(node: Node, ask: Asker, saved: Session) -> None:
    other_node(node, used=GIB - 4 * MIB + 1)
    assert ask("restore", saved.pid, THERE) == "OUT_OF_MEMORY"
    other_node(node)
    assert ask("restore", saved.pid, THERE) == "OPERATING_SYSTEM"
    assert ask("unlock", saved.pid) == "ILLEGAL_STATE"
    assert ask.state(saved.pid) == "checkpointed"


def test_exactly_enough_room_is_enough(node: Node, ask: Asker, saved: Session) -> None:
    other_node(node, used=GIB - 4 * MIB)
    ask.brought_back(saved, THERE)
    assert saved.is_well()


def test_what_others_hold_is_no_room(node: Node, ask: Asker) -> None:
    node.says(card(0, vram=100 * MIB))
    first = node.session("--mib", "60")
    ask.checkpointed(first)
    second = node.session("--mib", "60")
    assert ask("restore", first.pid) == "OUT_OF_MEMORY"
    assert second.is_well()


def test_another_driver_can_not_take_it(node: Node, ask: Asker, saved: Session) -> None:
    node.says("driver 580.82.07", card(0), card(1))
    assert ask("restore", saved.pid) == "SYSTEM_DRIVER_MISMATCH"
    node.says(card(0), card(1))
    ask.brought_back(saved)
    assert saved.is_well()


def test_a_570_restores_onto_the_same_cards_only(node: Node) -> None:
    node.says("driver 570.86.10", card(0), card(1))
    ask = Asker(node)
    assert ask("init") == "SUCCESS"
    session = node.session()
    ask.checkpointed(session)
    assert ask("restore", session.pid, [(uuid(0), uuid(1)), (uuid(1), uuid(0))]) == "INVALID_VALUE"
    ask.brought_back(session)
    assert session.is_well()


def test_before_570_there_is_no_such_call(node: Node) -> None:
    node.says("driver 565.57.01", card(0), card(1))
    ask = Asker(node)
    assert ask("init") == "SUCCESS"
    said = ask("lock", node.session().pid)
    if node.built.sanitized:
        assert said == "NOT_SUPPORTED"
    else:  # in the words of cuda-bindings
        assert said == "function cuCheckpointProcessLock is not found"
