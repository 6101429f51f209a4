"""Nodes told apart by what a checkpoint may ask of one.

Of ten thousand nodes most are alike, and no two sessions need the same to the byte: so a session is
compared with one node of each kind, and only where nodes of a kind differ in what matters to it,
with each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.job import Node
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.stages.view import View

Places = tuple[str, ...] | None
# What is wrong with a node of these facts, "" where nothing is.
Say = Callable[[NodeFacts], str]


@dataclass(slots=True)
class Kind:
    """Nodes that differ only in the size of their memory, in what is mounted, and in the names of
    their GPUs. `fresh`: they are heard of. `least`, `most`: what they have of memory; without
    mounts and names."""

    fresh: bool
    least: NodeFacts
    most: NodeFacts
    members: dict[str, NodeFacts] = field(default_factory=dict)
    by_places: dict[Places, list[str]] = field(default_factory=dict)

    def add(self, name: str, facts: NodeFacts) -> None:
        low, high = self.least, self.most
        if facts.memory_total < low.memory_total or facts.hugepages < low.hugepages:
            self.least = replace(
                low,
                memory_total=min(low.memory_total, facts.memory_total),
                hugepages=min(low.hugepages, facts.hugepages),
            )
        if facts.memory_total > high.memory_total or facts.hugepages > high.hugepages:
            self.most = replace(
                high,
                memory_total=max(high.memory_total, facts.memory_total),
                hugepages=max(high.hugepages, facts.hugepages),
            )
        self.members[name] = facts
        self.by_places.setdefault(facts.mounts, []).append(name)


@dataclass(frozen=True, slots=True)
class Kinds:
    """Of one partition. `unheard`: no agent there ever reported. `cards`: where a GPU is."""

    kinds: tuple[Kind, ...]
    unheard: tuple[str, ...]
    cards: Mapping[str, str]

    def verdicts(
        self, needs: Needs | None, say: Say, mounts: Callable[[Places], str], silent: str = ""
    ) -> tuple[list[str], dict[str, str]]:
        """What is wrong with each kind, and with those nodes of which that is not so. `mounts`:
        what of these is wrong, asked only of nodes with which nothing else is. `silent`: what is
        wrong with those that are not heard of; "": what they last said of themselves counts."""
        whole: list[str] = []
        single: dict[str, str] = {}
        own = set[str]()
        if needs is not None and needs.gpu is not None:
            own = {self.cards[card.uuid] for card in needs.gpu.cards if card.uuid in self.cards}
        for kind in self.kinds:
            if silent and not kind.fresh:
                whole.append(silent)
                continue
            why = say(kind.least)
            whole.append(why)
            if why != say(kind.most):
                single |= {name: say(facts) for name, facts in kind.members.items()}
            else:
                single |= {name: say(kind.members[name]) for name in own & kind.members.keys()}
            if why:
                continue
            for places, names in kind.by_places.items():
                if lacks := mounts(places):
                    single |= {name: single.get(name) or lacks for name in names}
        return whole, single

    def each(self, whole: list[str], single: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """(node, what is wrong with it) of all that were heard of."""
        for kind, why in zip(self.kinds, whole, strict=True):
            for name in kind.members:
                yield name, single.get(name, why)


def kinds(partition: str, view: View, now: float, silent_after: float) -> Kinds:
    """Of all nodes that a job of these partitions could get."""
    memo = view.recall(now)
    found = memo.get(("kinds", partition))
    if not isinstance(found, Kinds):
        found = memo["kinds", partition] = _told_apart(partition, view, now, silent_after)
    return found


def _told_apart(partition: str, view: View, now: float, silent_after: float) -> Kinds:
    found: dict[object, Kind] = {}
    unheard: list[str] = []
    cards: dict[str, str] = {}
    for node in candidates(partition, view.nodes.values()):
        heard = view.agents.get(node.name)
        if heard is None:
            unheard.append(node.name)
            continue
        facts = heard.report.facts
        fresh = view.fresh(node.name, now, silent_after) is not None
        key = (fresh, *_compared(facts))
        kind = found.get(key)
        if kind is None:
            bare = tuple(replace(card, uuid="") for card in facts.gpus)
            least = replace(facts, mounts=None, gpus=bare)
            kind = found[key] = Kind(fresh, least, least)
        kind.add(node.name, facts)
        cards |= {card.uuid: node.name for card in facts.gpus}
    return Kinds(tuple(found.values()), tuple(unheard), cards)


def _compared(facts: NodeFacts) -> tuple[object, ...]:
    """All that a checkpoint may be compared with, but for what Kind leaves open."""
    return (
        facts.arch, facts.kernel, facts.cpu_flags, facts.xsave, facts.glibc, facts.glibc_build,
        facts.criu, facts.criu_ok, facts.criu_problem, facts.plugin_seen,
        facts.plugin_problem,
        facts.store_ok, facts.store_problem, facts.memory_total > 0,
        tuple((card.model, card.memory, card.mig) for card in facts.gpus),
        facts.gpu_driver, facts.gpu_problem,
    )  # fmt: skip


def candidates(partition: str, nodes: Iterable[Node]) -> list[Node]:
    """The nodes that a job of these partitions could get."""
    wanted = set(partition.split(","))
    return [n for n in nodes if not n.partitions or wanted & set(n.partitions)]
