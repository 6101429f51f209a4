"""What of the store may go, in which order, who is told, and why the rest is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_reclaim.config.schema import Retention
from slurm_reclaim.model.catalogue import Announced, Pack, StoredCheckpoint, StoredSession
from slurm_reclaim.model.retention import Known, Plan, Standing
from slurm_reclaim.policy import quota
from slurm_reclaim.policy.retention import plan

NOW, DAY = 1_000_000.0, 86400.0
RULES = Retention(ended=7 * DAY, least=DAY, per_session=2, notice=14 * DAY, notice_again=DAY)
A, B, C = "lab/1.2001.10", "lab/2.2001.20", "lab/3.2002.30"


def stored(name: str = A, numbers: tuple[int, ...] = (0,), **more: Any) -> StoredSession:
    """Each checkpoint has 100 bytes and a pack of 1000 bytes; all share one of 5000."""
    checkpoints = tuple(
        StoredCheckpoint(n, 10.0 + n, 100, ("0-0.pack", f"{n}-1.pack")) for n in numbers
    )
    packs = (Pack("0-0.pack", 5000), *(Pack(f"{n}-1.pack", 1000) for n in numbers))
    return replace(StoredSession(name, checkpoints, packs), **more)


def known(standing: Standing, since: float = NOW - 3 * DAY, uid: int = 2001, **more: Any) -> Known:
    return Known(standing, since, uid, "alice", **more)


def of(session: StoredSession, known: Known, rules: Retention = RULES, *pinned: int) -> Plan:
    pins = {(session.session, number) for number in pinned}
    return plan([session], {session.session: known}, pins, rules, NOW)


def going(found: Plan) -> dict[str, tuple[int, ...]]:
    return {expiry.session: expiry.restarts for expiry in found.expiries}


def test_ended_sessions_go_when_they_are_old_enough() -> None:
    found = of(stored(numbers=(0, 1)), known(Standing.ENDED, NOW - 8 * DAY))
    assert going(found) == {A: (0, 1)}
    assert found.expiries[0].ended
    young = of(stored(), known(Standing.ENDED, NOW - 6 * DAY))
    assert going(young) == {}
    assert young.verdicts[A, 0].due == NOW + DAY


def test_only_ended_and_superseded_ones_ever_go() -> None:
    hungry = replace(RULES, user_quota=1, total_quota=1, ended=0, least=0, per_session=1)
    for standing in Standing:
        found = of(stored(numbers=(0, 1, 2)), known(standing, 0.0), hungry)
        expected = {
            Standing.ENDED: {A: (0, 1, 2)}, Standing.ALIVE: {A: (0, 1)}, Standing.HELD: {A: (0, 1)}
        }.get(standing, {})  # fmt: skip
        assert going(found) == expected, standing
        assert all(verdict.reason for verdict in found.verdicts.values())


def test_the_newest_that_can_be_read_stays_and_the_one_the_journal_names() -> None:
    session = stored(numbers=(0, 1, 2, 3))
    damaged = replace(session.checkpoints[3], problem="it is cut short")
    session = replace(session, checkpoints=(*session.checkpoints[:3], damaged))
    hungry = replace(RULES, per_session=1, user_quota=1)
    assert going(of(session, known(Standing.HELD), hungry)) == {A: (0, 1)}
    assert going(of(session, known(Standing.HELD, checkpoint=1), hungry)) == {A: (0,)}


def test_what_is_on_its_node_only_neither_goes_nor_takes_anothers_place() -> None:
    waiting = StoredCheckpoint(2, only="n1")
    session = stored(numbers=(0, 1))
    session = replace(session, checkpoints=(*session.checkpoints, waiting))
    hungry = replace(RULES, per_session=1, user_quota=1, ended=0, least=0)
    held = of(session, known(Standing.HELD, checkpoint=2), hungry)
    assert going(held) == {A: (0,)}
    assert held.verdicts[A, 2].reason == "it is on n1 only until it is uploaded"
    ended = of(session, known(Standing.ENDED, 0.0), hungry)
    assert going(ended) == {A: (0, 1)}
    short = replace(RULES, user_quota=1, least=0)
    assert going(of(session, known(Standing.ENDED), short, 0)) == {A: (1,)}
    alone = replace(session, packs=(), checkpoints=(waiting,))
    assert going(of(alone, known(Standing.ENDED))) == {}


def test_packs_that_one_on_its_way_may_bring_are_no_stray_ones() -> None:
    session = stored(numbers=(0, 1))
    own = (*session.packs, Pack("1-7.pack", 10), Pack("0-7.pack", 10))
    waiting = (*session.checkpoints, StoredCheckpoint(2, only="n1"))
    assert replace(session, packs=own, checkpoints=waiting).stray == ("0-7.pack",)


def test_a_pinned_one_never_goes() -> None:
    hungry = replace(RULES, ended=0, least=0, user_quota=1)
    found = of(stored(numbers=(0, 1)), known(Standing.ENDED, 0.0), hungry, 0)
    assert going(found) == {A: (1,)}
    assert found.verdicts[A, 0].reason == "it is pinned"


def test_a_quota_takes_what_ended_longest_ago_first() -> None:
    sessions = [stored(A), stored(B), stored(C)]
    what = {
        A: known(Standing.ENDED, NOW - 2 * DAY),
        B: known(Standing.ENDED, NOW - 3 * DAY),
        C: known(Standing.ENDED, NOW - 6 * DAY, uid=2002),
    }
    one = sessions[0].bytes
    mine = plan(sessions, what, (), replace(RULES, user_quota=one), NOW)
    assert going(mine) == {B: (0,)}
    assert "alice is over the quota" in mine.expiries[0].reason
    every = plan(sessions, what, (), replace(RULES, total_quota=one), NOW)
    assert list(going(every)) == [C, B], "in this order"
    assert going(plan(sessions, what, (), replace(RULES, total_quota=3 * one), NOW)) == {}


def test_a_quota_counts_shared_packs_once_and_frees_what_nobody_else_needs() -> None:
    session = stored(numbers=(0, 1, 2))
    assert session.bytes == 3 * 100 + 5000 + 3 * 1000
    assert quota.freed(session, {0}) == 1100
    assert quota.freed(session, {0, 1, 2}) == session.bytes
    rules = replace(RULES, per_session=9, user_quota=session.bytes - 1)
    assert going(of(session, known(Standing.ALIVE), rules)) == {A: (0,)}


def test_an_ended_session_has_a_day_even_where_a_quota_is_exceeded() -> None:
    rules = replace(RULES, user_quota=1)
    assert going(of(stored(), known(Standing.ENDED, NOW - 0.5 * DAY), rules)) == {}


def test_what_an_interruption_left_is_taken_up() -> None:
    begun = stored(numbers=(1,), leftovers=(".expired-0",))
    for standing, ended in ((Standing.ALIVE, False), (Standing.ENDED, True)):
        (expiry,) = of(begun, known(standing)).expiries
        assert (expiry.restarts, expiry.ended) == ((), ended)
    assert of(begun, known(Standing.BUSY)).expiries == ()
    stray = stored(numbers=(1,), packs=(Pack("0-0.pack", 1), Pack("0-7.pack", 1)))
    assert [e.restarts for e in of(stray, known(Standing.ALIVE)).expiries] == [()]
    dumping = stored(numbers=(1,), packs=(Pack("2-1.pack", 1),), leftovers=("1.2001.10.2",))
    assert of(dumping, known(Standing.ALIVE)).expiries == ()


# -- sessions that sleep for very long -----------------------------------------------------------

OLD = replace(RULES, hibernated=30 * DAY)


def said(at: float, deadline: float, since: float, times: int = 1) -> Announced:
    return Announced(A, since, deadline, at, times)


def test_by_default_a_session_sleeps_for_ever() -> None:
    found = of(stored(), known(Standing.HELD, 0.0))
    assert (found.notify, found.retire, found.expiries) == ((), (), ())


def test_its_owner_is_told_in_time_and_again_before_the_end() -> None:
    assert of(stored(), known(Standing.HELD, NOW - 15 * DAY), OLD).notify == ()
    since = NOW - 17 * DAY
    (first,) = of(stored(), known(Standing.HELD, since), OLD).notify
    assert (first.deadline, first.times) == (NOW + 14 * DAY, 1)
    since = NOW - 29.5 * DAY
    heard = said(since + 16 * DAY, since + 30 * DAY, since)
    (second,) = of(stored(), known(Standing.HELD, since, announced=heard), OLD).notify
    assert second.times == 2
    twice = replace(heard, times=2)
    assert of(stored(), known(Standing.HELD, since, announced=twice), OLD).notify == ()


def test_nobody_ends_who_was_not_told_long_enough_before() -> None:
    since = NOW - 100 * DAY
    never = of(stored(), known(Standing.HELD, since), OLD)
    assert never.retire == ()
    assert never.notify[0].deadline == NOW + 14 * DAY, "told late: a full notice all the same"
    late = said(NOW - 13 * DAY, NOW - 1, since)
    assert of(stored(), known(Standing.HELD, since, announced=late), OLD).retire == ()
    before = said(NOW - 50 * DAY, NOW - 10 * DAY, since - DAY)
    assert of(stored(), known(Standing.HELD, since, announced=before), OLD).retire == ()


def test_it_ends_after_its_deadline_unless_it_is_pinned() -> None:
    since = NOW - 40 * DAY
    told = known(Standing.HELD, since, announced=said(NOW - 20 * DAY, NOW - 6 * DAY, since))
    found = of(stored(), told, OLD)
    assert found.retire == (A,)
    assert found.expiries == (), "its image goes only when it has ended"
    assert of(stored(), told, OLD, 0).retire == ()
    assert of(stored(), told, replace(OLD, hibernated=60 * DAY)).retire == (), (
        "longer than was said"
    )
    assert of(stored(), told, RULES).retire == ()


def test_who_is_refused_for_the_quota() -> None:
    rules = replace(RULES, user_quota=10 << 30, total_quota=20 << 30)
    assert quota.refusal(rules, 4 << 30, 4 << 30, 6 << 30, "alice") == ""
    mine = quota.refusal(rules, 5 << 30, 5 << 30, 6 << 30, "alice")
    assert mine == (
        "quota: alice has 5.0 GiB of 10.0 GiB in the store, and this session needs up to 6.0 GiB"
    )
    assert "the store has" in quota.refusal(rules, 0, 19 << 30, 6 << 30, "alice")
    assert quota.refusal(RULES, 1 << 60, 1 << 60, 1 << 60, "alice") == ""


# -- whatever lies in the store ------------------------------------------------------------------

sizes = st.integers(0, 10_000)
numbers = st.sets(st.integers(0, 6), max_size=5)


@st.composite
def anything(draw: st.DrawFn) -> tuple[list[StoredSession], dict[str, Known], set[Any]]:
    found, what, pins = [], {}, set()
    for job in range(draw(st.integers(1, 5))):
        name = f"lab/{job}.2001.1"
        counts = sorted(draw(numbers))
        packs = [Pack(f"{n}-1.pack", draw(sizes)) for n in range(7)]
        checkpoints = tuple(
            StoredCheckpoint(
                n, draw(st.floats(0, NOW)), draw(sizes),
                tuple(p.name for p in packs if draw(st.booleans())),
                problem=draw(st.sampled_from(["", "", "bad"])),
            )
            for n in counts
        )  # fmt: skip
        found.append(StoredSession(name, checkpoints, tuple(packs)))
        since = draw(st.floats(0, NOW))
        heard = Announced(name, draw(st.sampled_from([since, 1.0])), draw(st.floats(0, NOW)), 5.0)
        what[name] = Known(
            draw(st.sampled_from(list(Standing))), since, draw(st.integers(1, 2)),
            announced=draw(st.sampled_from([None, heard])),
        )  # fmt: skip
        pins |= {(name, n) for n in counts if draw(st.booleans())}
    return found, what, pins


@st.composite
def any_rules(draw: st.DrawFn) -> Retention:
    small = st.sampled_from([0, 1, 100, 5000])
    return Retention(
        ended=draw(st.floats(0, NOW)), least=draw(st.floats(0, NOW)),
        per_session=draw(st.integers(1, 3)), hibernated=draw(st.sampled_from([0.0, 10.0])),
        notice=draw(st.floats(0, NOW)), user_quota=draw(small), total_quota=draw(small),
    )  # fmt: skip


@given(anything(), any_rules())
@settings(max_examples=60, deadline=None)
def test_nothing_that_may_be_needed_ever_goes(world: Any, rules: Retention) -> None:
    sessions, what, pins = world
    found = plan(sessions, what, pins, rules, NOW)
    by_name = {session.session: session for session in sessions}
    for expiry in found.expiries:
        session, one = by_name[expiry.session], what[expiry.session]
        assert one.standing in (Standing.ENDED, Standing.ALIVE, Standing.HELD)
        assert not {(session.session, n) for n in expiry.restarts} & pins
        if one.standing is not Standing.ENDED:
            assert not expiry.ended
            assert not session.needed & set(expiry.restarts)
    for name in found.retire:
        assert what[name].standing is Standing.HELD
        assert what[name].announced is not None
        assert what[name].announced.since == what[name].since
        assert not {(name, c.restarts) for c in by_name[name].checkpoints} & pins
    assert set(found.verdicts) == {(s.session, c.restarts) for s in sessions for c in s.checkpoints}
