"""python -m tests.traces synthetic|hard|sensei FILE: write one of the traces."""

from __future__ import annotations

import sys

from slurm_reclaim.adapters.trace import write

from . import behaviours, sensei


def main() -> None:
    what, file = sys.argv[1:3]
    if what == "sensei":
        found = sensei.path()
        if found is None:
            sys.exit("the trace is not here: RECLAIM_SENSEI_TRACE")
        write(file, sensei.entries(sensei.sessions(found), "converted"))
    else:
        plays = {"synthetic": behaviours.PLAYS, "hard": behaviours.HARD}[what]
        rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
        write(file, behaviours.entries(rounds, plays=plays), level=19)


main()
