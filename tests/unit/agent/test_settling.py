"""Locks of sessions whose GPU state is given back: each as long as it is in use."""

from __future__ import annotations

from slurm_reclaim.adapters.cuda import half


def test_a_lock_lives_as_long_as_somebody_has_it() -> None:
    before = len(half._SETTLING)
    with half._settling(7):
        assert half._settling(7).locked()
        assert not half._settling(8).locked()
    assert len(half._SETTLING) == before
