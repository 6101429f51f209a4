"""The table [retention] (schema.py)."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_reclaim.config.values import Bytes, Seconds, setting


@dataclass(frozen=True)
class Retention:
    """[retention]: How long checkpoints are kept (docs/storage.md). Only in mode prod is anything
    deleted by itself; the only checkpoint of a session that lives never is."""

    interval: Seconds = setting(Seconds(3600), "Time between two looks at the store.", least=1)
    ended: Seconds = setting(
        Seconds(7 * 86400), "The checkpoints of a session that has ended are kept this long."
    )
    least: Seconds = setting(
        Seconds(86400), "Of ended sessions: kept this long even where a quota is exceeded."
    )
    per_session: int = setting(
        2, "So many checkpoints of a living session are kept; the newest always.", least=1
    )
    hibernated: Seconds = setting(
        Seconds(0),
        "A session hibernated for this long is ended after a notice, its job cancelled; 0: never.",
    )
    notice: Seconds = setting(
        Seconds(14 * 86400), "Its owner is told this long before; without delivery it is kept."
    )
    notice_again: Seconds = setting(Seconds(86400), "And again this long before.")
    user_quota: Bytes = setting(
        Bytes(0),
        "Bytes one user may have in the store; 0: no limit. Beyond it ended sessions go early, and "
        "no session of that user is hibernated.",
    )
    total_quota: Bytes = setting(Bytes(0), "The same for all users together; 0: no limit.")
    owner_pins: int = setting(3, "Checkpoints that one user may pin; 0: only admins pin.", least=0)
