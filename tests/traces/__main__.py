"""python -m tests.traces synthetic|hard|sensei|recorded FILE: write one of the traces. `recorded`
makes tests/data/behaviours.jsonl.zst of the recording beside it."""

from __future__ import annotations

import sys

from slurm_reclaim.adapters.trace import read, write

from . import DATA, behaviours, sensei, stretch


def main() -> None:
    what, file = sys.argv[1:3]
    if what == "sensei":
        found = sensei.path()
        if found is None:
            sys.exit("the trace is not here: RECLAIM_SENSEI_TRACE")
        write(file, sensei.entries(sensei.sessions(found), "converted"))
    elif what == "recorded":
        recording = read(str(DATA / "recording.jsonl.zst"))
        write(file, stretch.entries(recording), level=19)
    else:
        plays = {"synthetic": behaviours.PLAYS, "hard": behaviours.HARD}[what]
        rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
        write(file, behaviours.entries(rounds, plays=plays), level=19)


main()
