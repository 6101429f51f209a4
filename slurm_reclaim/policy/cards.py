"""Which GPUs a checkpoint with CUDA state can be restored on. Pure.

The driver's rules: the same chip, as many cards as there were, enough memory on each, none cut by
MIG, and every card that was saved named in one map of old to new. The program's half of the driver
lies in the image, so the kernel's half must be of the version that it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slurm_reclaim.model import driver as drivers
from slurm_reclaim.model.checkpoint import GpuCard, GpuNeeds
from slurm_reclaim.model.words import amount


def node_lacks(needs: GpuNeeds, cards: Sequence[GpuCard], driver: str, problem: str) -> str:
    """The requirement that a node with these cards fails whichever of them a job gets, "" where it
    meets all. `problem`: why no CUDA state can be restored there."""
    if not cards:
        return problem or f"it has no GPU, the checkpoint needs {_counted(needs.cards)}"
    found = _too_few(needs, cards) or _other_driver(needs, driver)
    if found or problem:
        return found or problem
    there = {card.uuid for card in cards}
    if not {card.uuid for card in needs.cards} <= there and not _moves(driver):
        return f"it has other cards than the checkpoint's, and {_can_not_move(driver)}"
    return ""


def lacks(needs: GpuNeeds, given: Sequence[GpuCard], driver: str, problem: str) -> list[str]:
    """Every requirement that a job fails that was `given` these cards, all that it can open.
    `used` of each: bytes that are taken on it."""
    if problem:
        return [problem]
    found = [why] if (why := _other_driver(needs, driver)) else []
    found += [f"GPU {card.uuid} is split by MIG" for card in given if card.mig]
    if _models(needs.cards) != _models(given):
        theirs = _counted(given) if given else "no GPU"
        found.append(f"the job was given {theirs}, the checkpoint needs {_counted(needs.cards)}")
        return found
    mapped = {card.uuid: card for card in given}
    for old, new in pairs(needs.cards, given).items():
        card, saved = mapped[new], _of(needs.cards, old)
        if card.memory - card.used < saved.used:
            found.append(
                f"GPU {new} has {amount(max(0, card.memory - card.used))} of memory free, "
                f"the checkpoint needs {amount(saved.used)}"
            )
    others = sorted(mapped.keys() - {card.uuid for card in needs.cards})
    if others and not _moves(driver):
        found.append(
            f"the job was given other cards ({', '.join(others)}); {_can_not_move(driver)}"
        )
    return found


def pairs(saved: Sequence[GpuCard], given: Sequence[GpuCard]) -> dict[str, str]:
    """UUID of every saved card -> of the given one that takes its place: the same one where it is
    there, else one of its model, the fullest onto the one with most memory free. {} where the
    models and their numbers differ."""
    if _models(saved) != _models(given):
        return {}
    found = {card.uuid: card.uuid for card in saved if card.uuid in {c.uuid for c in given}}
    left = [card for card in given if card.uuid not in found]
    left.sort(key=lambda card: card.used - card.memory)
    for card in sorted(saved, key=lambda card: -card.used):
        if card.uuid not in found:
            place = next(each for each in left if each.model == card.model)
            left.remove(place)
            found[card.uuid] = place.uuid
    return found


def _too_few(needs: GpuNeeds, cards: Sequence[GpuCard]) -> str:
    """Whether each saved card finds a place of its own. The fullest first: a card that holds it
    holds any other of its model."""
    free = sorted((card for card in cards if not card.mig), key=lambda card: card.memory)
    for card in sorted(needs.cards, key=lambda card: -card.used):
        same = [each for each in free if each.model == card.model]
        if not same:
            return _short(needs, cards, card.model)
        if same[-1].memory < card.used:
            return (
                f"its {card.model} has {amount(same[-1].memory)} of memory, "
                f"the checkpoint needs {amount(card.used)} on one"
            )
        free.remove(same[-1])
    return ""


def _short(needs: GpuNeeds, cards: Sequence[GpuCard], model: str) -> str:
    split = sum(card.mig for card in cards if card.model == model)
    has = _counted(card for card in cards if not card.mig)
    mig = f" ({split} more split by MIG)" if split else ""
    return f"it has {has or 'no whole GPU'}{mig}, the checkpoint needs {_counted(needs.cards)}"


def _other_driver(needs: GpuNeeds, driver: str) -> str:
    if driver == needs.driver:
        return ""
    return (
        f"its NVIDIA driver is {driver or 'of an unknown version'}, "
        f"the checkpoint has {needs.driver} in its memory"
    )


def _moves(driver: str) -> bool:
    return drivers.version(driver) >= drivers.OTHER_CARD


def _can_not_move(driver: str) -> str:
    first = drivers.written(drivers.OTHER_CARD)
    return f"its NVIDIA driver {driver} is older than {first}, the first that restores elsewhere"


def _models(cards: Iterable[GpuCard]) -> Counter[str]:
    return Counter(card.model for card in cards)


def _counted(cards: Iterable[GpuCard]) -> str:
    """`2 x NVIDIA A100, 1 x NVIDIA L4`."""
    return ", ".join(f"{count} x {model}" for model, count in _models(cards).items())


def _of(cards: Iterable[GpuCard], uuid: str) -> GpuCard:
    return next(card for card in cards if card.uuid == uuid)
