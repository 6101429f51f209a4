"""Readings of one session's GPUs: which cards are its own, and what their rounds say of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slurm_reclaim.adapters.gpu.owners import Owners
from slurm_reclaim.adapters.gpu.watch import NvmlWatch, Round, nvml
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.node_session import GpuGrant, NodeSession
from slurm_reclaim.model.sample import GpuHeld, Reading, Signal

SIGNALS = (Signal.GPU, Signal.GPU_MEMORY, Signal.GPU_CODEC, Signal.GPU_PCIE)
# Between two rounds no more may pass, or samples are lost; see nvml_child.ROUND.
GAP = 12.0
# Who asks again so soon gets the same round.
AGAIN = 2.0
# Seconds that a round may be ahead of the clock.
AHEAD = 2.0
# Where a process's own figures lie in a round's `use`.
_OF_PROCESS = {Signal.GPU: 0, Signal.GPU_MEMORY: 1, Signal.GPU_CODEC: 2}

Card = Mapping[str, Any]


class CantTell(Exception):
    """Why nothing is known."""


def gpu_meter(session: NodeSession, config: Config) -> GpuMeter | None:
    return None if session.gpus is None else GpuMeter(session, session.gpus, nvml())


class GpuMeter:
    def __init__(
        self,
        session: NodeSession,
        grant: GpuGrant,
        watch: NvmlWatch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._clock = clock
        self._grant = grant
        self._watch = watch
        self._seen = 0.0
        self._latest: Round | None = None
        self._uuids: dict[int, str] = {}  # minor number -> UUID, from the first look on
        self._held: tuple[GpuHeld, ...] = ()

    def held(self) -> Sequence[GpuHeld]:
        return self._held

    def read(self, seconds: float) -> Mapping[str, Reading]:
        owners = Owners(self._session.init, self._session.relay)
        try:
            rounds = self._rounds(seconds)
            cards = self._cards(rounds[-1], owners)
        except CantTell as why:
            self._held = tuple(
                GpuHeld(h.uuid, h.model, h.index, h.memory_total) for h in self._held
            )
            return {str(signal): Reading(None, what=str(why)) for signal in SIGNALS}
        self._held = tuple(held for card in cards for held in _held(card, owners))
        if not cards:
            nothing = Reading(0.0, what="no process of the job has a CUDA context")
            return {str(signal): nothing for signal in SIGNALS}
        return {
            str(signal): highest(
                self._of_card(signal, each, card["uuid"], owners)
                for each in rounds
                for card in cards
            )
            for signal in SIGNALS
        }

    # -- which rounds, which cards ------------------------------------------------------------

    def _rounds(self, seconds: float) -> list[Round]:
        now = self._clock()
        if self._seen > now + AHEAD:
            # The clock was put back: what NVML says from now on is older than what was seen.
            self._seen = now - seconds
        after = self._seen or now - seconds
        rounds, why = self._watch.rounds(after)
        rounds = [each for each in rounds if each["at"] <= now + AHEAD]  # of before it was
        if not rounds and self._latest and abs(now - self._latest["at"]) < AGAIN:
            return [self._latest]
        if not rounds or now - rounds[-1]["at"] > GAP:
            raise CantTell(why)
        before, self._seen, self._latest = self._seen, rounds[-1]["at"], rounds[-1]
        for each in rounds:
            if before and each["at"] - before > GAP:
                raise CantTell(f"NVML was not read for {each['at'] - before:.0f} s")
            before = each["at"]
        return rounds

    def _cards(self, latest: Round, owners: Owners) -> list[Card]:
        """Those of the job; raises CantTell."""
        listed: list[Card] = latest["cards"]
        if self._grant.constrained:
            cards = [self._card(minor, listed) for minor in self._grant.reachable]
            self._see_none_elsewhere(listed, cards, owners)
            return sorted(cards, key=lambda card: card["index"])
        if not self._grant.reachable:
            raise CantTell("none of the node's NVIDIA device files is one that the job can open")
        return self._used(listed, owners)

    def _card(self, minor: int, listed: Iterable[Card]) -> Card:
        uuid = self._uuids.get(minor, "")
        for card in listed:
            if card["uuid"] and (card["uuid"] == uuid if uuid else card["minor"] == minor):
                self._uuids[minor] = card["uuid"]
                return card
        lost = "; ".join(f"card {c['index']}: {c['error']}" for c in listed if "error" in c)
        name = uuid or f"/dev/nvidia{minor}"
        raise CantTell(f"NVML has no card {name}" + (f" ({lost})" if lost else ""))

    def _see_none_elsewhere(
        self, listed: Iterable[Card], cards: Sequence[Card], owners: Owners
    ) -> None:
        """A process of the job on a card that it can't open: then device files and NVML don't mean
        the same cards, and no figure is to be believed."""
        own = {card["uuid"] for card in cards}
        for card in listed:
            for pid, _, _ in card.get("processes") or ():
                if card["uuid"] not in own and owners.of(pid) == "job":
                    raise CantTell(
                        f"{owners.name(pid)} of the job is on {card['uuid']}, which is not its own"
                    )

    def _used(self, listed: Iterable[Card], owners: Owners) -> list[Card]:
        if not owners.told:
            raise CantTell("the job's processes can't be told from others")
        used = []
        for card in listed:
            if "error" in card or card["processes"] is None:
                why = card.get("error") or card["processes_error"]
                raise CantTell(
                    "devices are not constrained (ConstrainDevices), so the job's cards are told "
                    f"by its processes; card {card['index']}: {why}"
                )
            if any(owners.of(pid) == "job" for pid, _, _ in card["processes"]):
                used.append(card)
        return used

    # -- figures ------------------------------------------------------------------------------

    def _of_card(self, signal: Signal, each: Round, uuid: str, owners: Owners) -> Reading:
        card: Card | None = next((c for c in each["cards"] if c["uuid"] == uuid), None)
        if card is None:
            return Reading(None, what=f"NVML did not list {uuid}")
        place = f"GPU {card['index']} ({card['model']}, {uuid})"
        if "error" in card:
            return Reading(None, what=f"{card['error']}: {place}")
        value, how = card[str(signal)]
        if value is None:
            return Reading(None, what=f"{how}: {place}")
        if value and self._is_shared(card, owners):
            return self._share(signal, card, value, place, owners)
        return Reading(value, what=f"{_amount(signal, value)} on {place}, {how}")

    def _is_shared(self, card: Card, owners: Owners) -> bool:
        if self._grant.shared:
            return True
        if self._grant.constrained:
            return False
        return any(owners.of(pid) == "foreign" for pid, _, _ in card["processes"] or ())

    def _share(
        self, signal: Signal, card: Card, whole: float, place: str, owners: Owners
    ) -> Reading:
        """Of a card that others use, too. Nothing on all of it is nothing of ours."""
        column = _OF_PROCESS.get(signal)
        if column is None:
            return Reading(whole, what=f"{_amount(signal, whole)} on {place} as a whole, shared")
        if card["use"] is None:
            return Reading(None, what=f"{card['use_error']}, on the shared {place}")
        # One that is gone by now, or can't be told, may be ours.
        own = [
            values[column]
            for pid, values in card["use"].items()
            if owners.of(int(pid)) != "foreign"
        ]
        value = max(own, default=0.0)
        return Reading(value, what=f"{value:.0f} % by the job's processes on the shared {place}")


def highest(readings: Iterable[Reading]) -> Reading:
    """Unknown where one of them is (S4)."""
    top = Reading(0.0)
    for reading in readings:
        if reading.value is None:
            return reading
        if not top.what or reading.value > (top.value or 0.0):
            top = reading
    return top


def _amount(signal: Signal, value: float) -> str:
    return f"{value / 1e6:.1f} MB/s" if signal is Signal.GPU_PCIE else f"{value:.0f} %"


def _held(card: Card, owners: Owners) -> list[GpuHeld]:
    if "error" in card:
        return [GpuHeld(card["uuid"], card["model"], card["index"])]
    parts = []
    for uuid, model, total, instance in card["instances"]:
        inside = [p for p in card["processes"] or () if p[2] == instance]
        if any(owners.of(pid) in ("job", "zombie") for pid, _, _ in inside):
            parts.append(_of_processes(uuid, model, card["index"], total, inside, owners))
    whole = (card["uuid"], card["model"], card["index"], card["memory"][0])
    return parts or [_of_processes(*whole, card["processes"], owners)]


def _of_processes(
    uuid: str,
    model: str,
    index: int,
    total: int,
    processes: Sequence[Sequence[Any]] | None,
    owners: Owners,
) -> GpuHeld:
    if processes is None or (processes and not owners.told):
        return GpuHeld(uuid, model, index, total)
    own = [p for p in processes if owners.of(p[0]) in ("job", "zombie")]
    amounts = [amount for _, amount, _ in own]
    return GpuHeld(
        uuid=uuid,
        model=model,
        index=index,
        memory_total=total,
        memory=-1 if None in amounts else sum(amounts),
        contexts=len({pid for pid, _, _ in own if owners.of(pid) == "job"}),
        # A dead process of ours holds on to the card, too, and no one can stop it: it is named.
        foreign=tuple(
            owners.name(pid)
            for pid in dict.fromkeys(p[0] for p in processes)
            if owners.of(pid) != "job"
        ),
    )
