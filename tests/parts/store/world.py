"""A session on a node, in memory: what the node stages act on, with failures on demand."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from slurm_reclaim.adapters.store.directory import DirectoryStore
from slurm_reclaim.adapters.store.keys import KeyFile
from slurm_reclaim.adapters.store.seal import Seal
from slurm_reclaim.errors import GpuNotGivenBack
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import (
    MANIFEST_VERSION,
    STORE_MARKER,
    Contents,
    Credentials,
    Manifest,
    Needs,
)
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, Order, Verb
from slurm_reclaim.ports import Opened, Staging

ID = SessionId("lab", 7, 2001, 1000)
OWNER = Credentials(os.geteuid(), os.getegid(), (), 0, False)
MEMORY = b"memory" * 10_000


class Killed(BaseException):
    """The agent is gone at this point: nothing after it runs."""


class World:
    """Counts every call to the outside as a step; `fail_at` raises `error` before that step."""

    def __init__(self, folder: Path) -> None:
        root = folder / "store"
        root.mkdir(mode=0o700, parents=True)
        (root / STORE_MARKER).touch()
        keys = KeyFile(folder / "store.keys")
        keys.add(0)
        store = DirectoryStore(root, ID.cluster, folder / "work", Seal(keys, root))
        self.store = _Store(self, store)
        self.tree = _Tree(self)
        self.link = _Link(self)
        self.session = NodeSession(7, 2001, 2001, 0, "fresh", Living.RUNNING, init=2)
        self.saved: list[Living] = []
        self.recorded = ""
        self.steps: list[str] = []
        self.fail_at = -1
        self.error: BaseException = Killed()
        self.fail_in: dict[str, Exception] = {}
        self.dead = False
        self.time = 5000.0
        self.put_back_at = -1
        """The step at which the node's clock is put back an hour."""

    def step(self, name: str) -> None:
        if self.dead:
            raise Killed
        self.steps.append(name)
        if name in self.fail_in:
            raise self.fail_in[name]
        if len(self.steps) - 1 == self.put_back_at:
            self.time -= 3600.0
        if len(self.steps) - 1 == self.fail_at:
            if isinstance(self.error, Killed):
                self.dead = True
            raise self.error

    def now(self) -> float:
        return self.time

    def save(self, session: NodeSession) -> None:
        self.step("save")
        self.saved.append(session.living)
        self.recorded = session.staged

    def order(self, **changes) -> Order:
        values = {
            "id": "o1",
            "verb": Verb.HIBERNATE,
            "session": str(ID),
            "job_id": 7,
            "restarts": 0,
            "reason": "idle for 60 min",
        }
        return Order(**(values | changes))


class _Link:
    def __init__(self, world: World) -> None:
        self.world, self.held, self.root, self.ended = world, False, 0, None

    def hold(self) -> None:
        self.world.step("hold")
        self.held = True

    def unhold(self) -> None:
        self.world.step("unhold")
        self.held = False

    def adopt_root(self, inner_pid: int) -> None:
        self.world.step("adopt_root")
        self.root, self.held = inner_pid, False

    def end(self, status: int) -> None:
        self.ended = status


class _Tree:
    def __init__(self, world: World) -> None:
        self.world = world
        self.state = "running"
        self.found: list[Blocker] = []
        self.typed_at = 0.0
        self.looks = 0
        self.arrived: list[str] = []
        self.late: list[str] = []
        self.used_before: list[str] = []
        self.memory_back = b""
        self.gpu_lost = False
        self.takes_gpus = False

    def blockers(self) -> Sequence[Blocker]:
        self.world.step("blockers")
        return self.found

    def memory(self) -> int:
        return 1000

    def used(self, since: float, optional: Collection[str]) -> Sequence[str]:
        assert self.state == "running", "asked too late: a frozen server does not answer"
        self.world.step("used")
        return self.used_before

    def activity(self, since: float) -> Sequence[str]:
        assert self.state == "stopped", "what a running tree does next is not seen"
        typed = ["terminal input arrived"] if self.typed_at > since else []
        # What comes while the dump is being hashed is seen by the second look.
        self.looks += 1
        return [*typed, *self.arrived, *(self.late if self.looks > 1 else [])]

    def owner(self) -> Credentials:
        return OWNER

    def dump(self, staged: Staging) -> None:
        self.world.step("dump")
        self.state = "stopped"
        if self.takes_gpus:
            self.world.session.gpu_taken = (300,)
        self.world.step("dumped")
        with staged.receive("pages-1.img") as pages:
            pages.write(MEMORY)
        with staged.receive("core-300.img") as core:
            core.write(b"core")

    def save_surroundings(self, staged: Staging) -> None:
        self.world.step("surroundings")
        with staged.receive("files.tar") as archive:
            archive.write(b"tar")

    def describe(self, staged: Staging, contents: Contents, reason: str) -> Manifest:
        self.world.step("describe")
        return Manifest(
            version=MANIFEST_VERSION,
            session=str(ID),
            restarts=0,
            job_id=7,
            uid=2001,
            gid=2001,
            user="alice",
            node="n1",
            created=0.0,
            reason=reason,
            root_pid=300,
            credentials=OWNER,
            monotonic=0,
            boottime=0,
            seccomp=True,
            private_tmp=True,
            contents=contents,
            outputs=(),
            needs=Needs("x86_64", "6", "4.2.1", 310, 1000),
            processes=3,
        )

    def resume(self) -> None:
        self.world.step("resume")
        assert self.state != "dead", "a killed tree can't run again"
        if self.gpu_lost:
            raise GpuNotGivenBack("python (310): CUDA_ERROR_UNKNOWN")
        self.state = "running"

    def let_run(self) -> None:
        self.world.step("let_run")
        assert self.state != "dead", "a killed tree can't run again"
        self.state = "running"

    def kill(self) -> None:
        self.world.step("kill")
        self.state = "dead"

    def put_back_outputs(self, opened: Opened) -> None:
        self.world.step("outputs")

    @contextmanager
    def coming_back(self, opened: Opened) -> Iterator[None]:
        self.world.step("coming_back")
        yield

    def fits(self, manifest: Manifest) -> Sequence[str]:
        self.world.step("fits")
        return ()

    def restore(self, opened: Opened) -> None:
        self.world.step("restore")
        assert self.state == "dead", "two incarnations at once (S3)"
        assert (opened.images / "core-300.img").read_bytes() == b"core"
        with opened.send("pages-1.img") as pages:
            self.memory_back = b"".join(iter(lambda: pages.read(1 << 16), b""))
        self.state = "running"


class _Store:
    """The real store in a temporary directory, with a step before each call."""

    def __init__(self, world: World, real: DirectoryStore) -> None:
        self.world, self.real = world, real

    def __getattr__(self, name: str):
        method = getattr(self.real, name)

        def call(*args, **keywords):
            if name in ("discard", "checkpoint_dir") and self.world.dead:
                raise Killed
            if name not in ("discard", "checkpoint_dir"):
                self.world.step(name)
            return method(*args, **keywords)

        return call
