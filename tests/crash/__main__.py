"""python -m tests.crash: the crash matrix on a lab of its own. See README.md."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.crash import expiry, points, remote, world
from tests.crash.lane import Tried
from tests.crash.matrix import Matrix, count_calls
from tests.crash.rig import PLACE, Rig
from tests.crash.session import USER


def main() -> int:
    options = _options()
    rig = Rig(options.lab, options.gpu)
    rig.lab("up", "--nodes", str(options.nodes), "--gpus", "1" if options.gpu else "0")
    stack = ExitStack()
    try:
        rig.install()
        # What a run that was ended by force has left.
        rig.sh("ctl", f"scancel -u {USER}", check=False)
        if options.remote:
            stack.enter_context(remote.in_use(rig, PLACE, options.remote))
        matrix = Matrix(rig, _tell, options.minutes)
        chosen = _choose(options, matrix)
        print(f"seed {options.seed}: {len(chosen)} points", flush=True)
        began = time.monotonic()
        matrix.run(chosen)
        print(matrix.table())
        print(f"{time.monotonic() - began:.0f} s")
        if options.results:
            matrix.write(options.results)
    finally:
        stack.close()
        rig.uninstall()
        if not options.keep:
            rig.lab("down", "--purge")
    return 1 if matrix.lost() else 0


def _choose(options: argparse.Namespace, matrix: Matrix) -> list[points.Point]:
    counts = count_calls(matrix.lanes[0])
    for (program, verb), kinds in counts.items():
        print(f"{program} makes {len(kinds)} calls in a {verb}", flush=True)
    found = list(points.every(counts, options.seed, options.ptrace))
    if options.remote:
        found += points.around(counts, world.REMOTE_EVENTS, options.each, "s3")
    elif not options.ptrace:
        found += points.around(counts, world.EVENTS, options.each)
        found += points.around(counts, [world.AT_STORE], 3 * options.each, "criu")
        found += points.beside(counts, world.UPGRADES, options.each)
        found += _expiries(matrix, options)
    if options.only:
        found = [p for p in found if all(word in str(p) for word in options.only)]
    if options.any:
        found = [p for p in found if any(word in str(p) for word in options.any)]
    return points.sample(found, options.seed)[: options.points or None]


def _expiries(matrix: Matrix, options: argparse.Namespace) -> list[points.Point]:
    if options.no_expiry or options.gpu:
        return []
    lane = expiry.lane_of(matrix.lanes[0].rig)
    counts = expiry.count_calls(lane)
    lane.start_over()
    lane.rig.set_retention("")
    for (program, verb), kinds in counts.items():
        print(f"{program} makes {len(kinds)} calls for {verb}", flush=True)
    found = list(points.every(counts, options.seed))
    return found + list(points.around(counts, expiry.EVENTS, options.each))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--lab", default="crash", help="name of the lab; brought up and down")
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--points", type=int, default=0, help="at most so many; 0: all")
    parser.add_argument("--minutes", type=float, default=0, help="begin none after so long")
    parser.add_argument("--seed", type=int, default=0, help="which points, and their order")
    parser.add_argument("--only", nargs="*", default=[], help="points whose line has these words")
    parser.add_argument("--any", nargs="*", default=[], help="... that has one of these")
    parser.add_argument("--gpu", action="store_true", help="sessions with a (simulated) GPU")
    parser.add_argument("--each", type=int, default=4, help="points of each event of the world")
    parser.add_argument("--no-expiry", action="store_true", help="no deletions")
    parser.add_argument("--remote", choices=("before", "after"), help="an object store; README.md")
    parser.add_argument("--ptrace", action="store_true", help="CRIU's ptrace calls, no others")
    parser.add_argument("--results", type=Path, help="a line of JSON for each point")
    return parser.parse_args()


def _tell(tried: Tried) -> None:
    outcome = tried.outcome or "not reached"
    print(f"{outcome:12} {tried.seconds:5.1f} s  {tried.point}  [{tried.call}]", flush=True)
    if tried.note:
        print("    " + tried.note.replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
