"""Which packs of a session's last checkpoint the next one is built upon."""

from __future__ import annotations

from collections.abc import Collection

from slurm_reclaim.adapters.store.blocks import Index
from slurm_reclaim.adapters.store.frames import BLOCK
from slurm_reclaim.model.checkpoint import Contents, Part

# Less than this used, for each byte stored, and it is not: else one block would keep a pack.
_LIVELY = 0.25
# Nor are more than so many with the new one, each of which is an open file and some memory wherever
# it is read.
MOST_PACKS = 128


def worth_sharing(
    contents: Contents, index: Index, encrypted: Collection[str] | None
) -> tuple[Part, ...]:
    """In their order. `encrypted`: names of those that are, and no others will do; None: any."""
    used = dict.fromkeys(index.packs, 0)
    for pack, _, count in (run for stream in index.streams for run in stream.runs):
        if pack >= 0:
            used[index.packs[pack]] += count * BLOCK
    lively = [
        pack
        for pack in contents.packs
        if used.get(pack.path, 0) >= _LIVELY * max(1, pack.size)
        and (encrypted is None or pack.path in encrypted)
    ]
    most = sorted(lively, key=lambda pack: used[pack.path], reverse=True)[: MOST_PACKS - 1]
    return tuple(pack for pack in lively if pack in most)
