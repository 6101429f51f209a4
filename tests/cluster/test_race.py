"""C13: the owner comes back in the last second, again and again, at a random moment around the
deadline. Whoever comes before the commit wins, and nothing typed or sent is ever lost.

RECLAIM_RACES says how many repeats (`make race`: 200); every run of the tests tries a few.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter as Tally
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.notebook import TOKEN, Notebook, put
from tests.cluster.policy import policy
from tests.cluster.test_idle import events, shown
from tests.cluster.test_main_job import typed

pytestmark = [pytest.mark.cluster, pytest.mark.alone]
REPEATS = int(os.environ.get("RECLAIM_RACES", "3"))
AT_ONCE = 3
SEED = int(os.environ.get("RECLAIM_SEED", "0")) or int(time.time())
WINDOW, GRACE = 6, 6  # seconds
# Around the deadline: the order goes out within a second of it, the dump takes about one.
EARLY, LATE = -1.0, 3.0


@pytest.fixture(scope="module")
def hurry(lab: Lab) -> Iterator[None]:
    with policy(lab, window=f"{WINDOW}s", grace=f"{GRACE}s", cooldown="0s"):
        yield


@dataclass
class Racer:
    """One notebook whose owner comes back: `cells` that were answered, `lines` that were typed
    into an open terminal."""

    book: Notebook
    terminal: str
    random: random.Random
    cells: int = 0
    lines: int = 0
    outcomes: Tally[str] = field(default_factory=Tally)

    @property
    def typed_file(self) -> str:
        return f"/shared/home/{self.book.user}/typed-{self.book.job}"

    def repeat(self) -> None:
        deadline = self._warned()
        way = self.random.choice(("cell", "key", "keep"))
        at = deadline + self.random.uniform(EARLY, LATE)
        began = time.time()
        try:
            won = getattr(self, way)(at)
            self._settle(way, won, began, at - deadline)
        except AssertionError as error:
            past = [f"{e['at'] - at:+.2f} {e['kind']}: {e['reason']}" for e in events(self.book)]
            raise AssertionError(f"{way}: {error}\n" + "\n".join(past[-12:])) from error

    def _warned(self) -> float:
        def deadline() -> float:
            now = shown(self.book)
            if now["state"] == "HIBERNATED":  # missed it while something else was done
                self.book.restore()
            return now["deadline"] or 0 if now["state"] == "WARNED" else 0

        return float(self.book.lab.wait("a warning", deadline, 120))  # type: ignore[arg-type]

    def _come_back(self, kind: str, name: str, at: float, text: str) -> dict:
        done = self.book.lab.exec(
            "ctl", "/opt/jupyter/bin/python", "/shared/inside/back.py", kind, self.book.node,
            str(self.book.port), TOKEN, name, str(at), user=self.book.user, stdin=text,
        )  # fmt: skip
        return json.loads(done.stdout)

    def cell(self, at: float) -> float:
        """When it was sent, if it was answered; 0 where the connection was gone by then."""
        code = "n += 1; print(n)"
        told = self._come_back("cell", self.book.kernels[0], at, code)
        if told["answer"]:
            self.cells += 1
            assert int(told["answer"]) == self.cells, "a cell was lost or run twice"
            return told["sent"]
        assert told["closed"], f"sent over an open connection and never answered: {told}"
        # Whether it was run before the connection went is the kernel's to say.
        self.outcomes["cell met a closed connection"] += 1
        return -told["sent"]

    def key(self, at: float) -> float:
        line = f"echo line{self.lines} >> {self.typed_file}"
        told = self._come_back("key", self.terminal, at, line)
        if told["sent"] and not told["closed"]:
            self.lines += 1
            return told["sent"]
        self.outcomes["key met a closed connection"] += 1
        return -told["sent"]

    def keep(self, at: float) -> float:
        time.sleep(max(0.0, at - time.time()))
        done = self.book.reclaim("keep", str(self.book.job), "--for", "15s", check=False)
        if done.returncode == 0:
            return time.time()
        assert done.returncode == 27, done.stderr
        return 0.0

    def _settle(self, way: str, won: float, began: float, offset: float) -> None:
        """Whatever happened: the session is whole, and the winner is who came first."""
        busy = ("HIBERNATING", "REQUEUING", "RESTORING", "QUEUED")
        self.book.lab.wait("an end", lambda: shown(self.book)["state"] not in busy, 60)
        # The decision about the deadline may be a moment away.
        time.sleep(2.5)
        self.book.lab.wait("an end", lambda: shown(self.book)["state"] not in busy, 60)
        state = shown(self.book)["state"]
        saved = [e["at"] for e in events(self.book, "checkpoint-committed") if e["at"] > began]
        # Kept while it was being saved: committed all the same, and restored where it was.
        given_back = [e["at"] for e in events(self.book, "requeue-refused")]
        committed = [at for at in saved if not any(at <= back < at + 2 for back in given_back)]
        if way == "keep" and won:
            assert state in ("ACTIVE", "IDLE", "WARNED"), f"kept at {offset:+.2f} s, but {state}"
            self.book.reclaim("keep", str(self.book.job), "--for", "15s", check=False)
        # Whoever was answered before it was saved has stopped it, for a window and a grace.
        soon = [at for at in committed if 0 < won < at < won + WINDOW + GRACE - 1]
        assert not soon, f"{way} at {offset:+.2f} s was answered, then it was hibernated"
        self.outcomes[f"{way}: {'hibernated' if state == 'HIBERNATED' else 'runs on'}"] += 1
        if state == "HIBERNATED":
            self.book.restore()
        self._stay()
        self._whole()

    def _stay(self) -> None:
        """Not to be hibernated while we look."""
        self.book.lab.wait("to be kept", lambda: self._kept(), 60)

    def _kept(self) -> bool:
        done = self.book.reclaim("keep", str(self.book.job), "--for", "15s", check=False)
        if shown(self.book)["state"] == "HIBERNATED":
            self.book.restore()
        return done.returncode == 0 and shown(self.book)["state"] == "ACTIVE"

    def _whole(self) -> None:
        """Every variable and every line is there."""
        n = int(self.book.cell("print(n)").text)
        # One that met a closed connection may have been run before it was closed.
        assert n >= self.cells, f"{self.cells} cells were answered, {n} are there"
        self.cells = n
        shell = self.book.lab.exec("ctl", "cat", self.typed_file, check=False).stdout.split()
        assert len(shell) >= self.lines, f"{self.lines} lines were typed, {shell} arrived"
        self.lines = len(shell)


def start(lab: Lab, seed: int, port: int) -> Racer:
    book = Notebook.start(lab, "--reclaim=on", port=port)
    racer = Racer(book, "", random.Random(seed))
    racer._stay()
    book.cell("n = 0")
    racer._stay()
    racer.terminal = typed(book, "true")["name"]
    return racer


def test_whoever_comes_back_before_the_commit_wins(lab: Lab, hurry: None) -> None:
    print(f"RECLAIM_SEED={SEED}")
    put(lab, "back.py")
    many = min(AT_ONCE, REPEATS)
    racers: list[Racer] = []

    def run(number: int) -> None:
        racers.append(racer := start(lab, SEED + number, 24000 + 10 * number))
        for _ in range(-(-REPEATS // many)):
            racer.repeat()

    try:
        with ThreadPoolExecutor(many) as pool:
            ran = [pool.submit(run, number) for number in range(many)]
        wrong = [str(each.exception()) for each in ran if each.exception()]
        assert not wrong, "\n\n".join(wrong)
    finally:
        for racer in racers:
            print(dict(racer.outcomes))
            racer.book.cancel()
    assert sum(sum(r.outcomes.values()) for r in racers) >= REPEATS
