# SPDX-License-Identifier: Apache-2.0
"""Lock, checkpoint, restore, unlock of a living process; CRIU has no part in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_reclaim.adapters.cuda.driver import CallFailed, Driver
from slurm_reclaim.adapters.gpu.watch import NvmlWatch, Round
from slurm_reclaim.adapters.proc import headroom
from slurm_reclaim.model import driver as drivers
from tests.gpu.real.conftest import Client, limit, round_of
from tests.gpu.real.results import Row, Table

Start = Callable[..., Client]
PATTERNS = ("sizes", "pinned", "streams", "torch", "cublas")
FREE_WITHIN = 15.0


def timed(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def on_a_card(watch: NvmlWatch, pid: int) -> bool:
    found, why = round_of(watch)
    assert found is not None, why
    return any(p[0] == pid for card in found["cards"] for p in card["processes"] or ())


def down(driver: Driver, client: Client, row: Row) -> None:
    """Everything to the host."""
    row.lock = timed(lambda: driver.lock(client.seen, 60.0))
    assert driver.state(client.seen) == "locked"
    row.checkpoint = timed(lambda: driver.checkpoint(client.seen, limit(client.bytes)))
    assert driver.state(client.seen) == "checkpointed"


def up(driver: Driver, client: Client, row: Row, pairs: list[tuple[str, str]]) -> None:
    row.restore = timed(lambda: driver.restore(client.seen, limit(client.bytes), pairs))
    row.unlock = timed(lambda: driver.unlock(client.seen))
    assert driver.state(client.seen) == "running"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_comes_back_bit_by_bit(
    start: Start, driver: Driver, watch: NvmlWatch, row: Callable[[Row], None], pattern: str
) -> None:
    client = start(pattern)
    client.verified()
    assert driver.has_state(client.seen)
    measured = Row(pattern, client.bytes)
    down(driver, client, measured)
    deadline = time.monotonic() + FREE_WITHIN
    while on_a_card(watch, client.process.pid):
        assert time.monotonic() < deadline, "NVML still shows it on a card"
        time.sleep(0.1)
    up(driver, client, measured, [])
    client.verified()
    row(measured)


@pytest.mark.parametrize("pattern", ["sizes", "torch", "cublas"])
def test_it_goes_on_as_if_nothing_had_been(start: Start, driver: Driver, pattern: str) -> None:
    """The same steps with a checkpoint in between and without give the same bits."""
    moved, stayed = start(pattern, seed=7), start(pattern, seed=7)
    for _ in range(3):
        down(driver, moved, Row(pattern, moved.bytes))
        up(driver, moved, Row(pattern, moved.bytes), [])
        assert moved.ask("work") == stayed.ask("work")


def test_a_card_that_is_nearly_full(
    start: Start, driver: Driver, row: Callable[[Row], None], node: Round
) -> None:
    """As much as is free, or as half of what the host has available."""
    free = min(card["memory"][0] - card["memory"][1] for card in node["cards"])
    room = (headroom.of_node() or 0) // 2
    client = start("fill", mib=0 if room > free else room >> 20)
    measured = Row("full card" if room > free else "half of the host's memory", client.bytes)
    down(driver, client, measured)
    up(driver, client, measured, [])
    client.verified()
    row(measured)


def test_onto_the_other_cards(
    start: Start, driver: Driver, node: Round, row: Callable[[Row], None]
) -> None:
    uuids = [card["uuid"] for card in node["cards"]]
    if len(uuids) < 2 or len({card["model"] for card in node["cards"]}) > 1:
        pytest.skip("moving needs two cards of one model that this process can open")
    if drivers.version(node["driver"]) < drivers.OTHER_CARD:
        pytest.skip(f"driver {node['driver']} restores onto the same card only")
    client = start("sizes")
    measured = Row("sizes, onto another card", client.bytes)
    down(driver, client, measured)
    up(driver, client, measured, list(zip(uuids, uuids[1:] + uuids[:1], strict=True)))
    client.verified()
    row(measured)


def test_what_becomes_of_managed_memory(
    start: Start, driver: Driver, row: Callable[[Row], None]
) -> None:
    """It can't be seen from outside. Where the driver takes it, it must come back; where it does
    not, the table says in what state the process is left."""
    client = start("managed")
    measured = Row("managed memory", client.bytes)
    try:
        down(driver, client, measured)
    except CallFailed as error:
        state = driver.state(client.seen)
        if state == "locked":
            driver.unlock(client.seen)
            client.verified()
        row(replace(measured, note=f"refused: {error.result}, then {state}"))
        assert state != "checkpointed"
        return
    up(driver, client, measured, [])
    client.verified()
    row(measured)


def test_plain_copies_for_comparison(start: Start, table: Table) -> None:
    found = start("sizes", mib=1).ask("bandwidth")
    assert found["up"] > 0
    table.plain.update({f"cuMemcpy {name}": rate for name, rate in found.items()})
