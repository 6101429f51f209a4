"""Asks every Jupyter server of a session, remembering how each of them can be asked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from slurm_reclaim.adapters.jupyter import access, asking, listeners
from slurm_reclaim.adapters.jupyter.access import Access
from slurm_reclaim.adapters.jupyter.asking import KernelState, NoAnswer, Refused, UnixSocket
from slurm_reclaim.adapters.jupyter.listeners import Listener
from slurm_reclaim.adapters.jupyter.processes import Server
from slurm_reclaim.adapters.proc import owner, tree
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.model.node_session import NodeSession

# A server that refuses writes a warning into its log each time, which is the job's output.
SPARE = 300.0  # seconds
MOST_SERVERS = 16
MOST_TRIES = 6


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask: at the TCP socket `inode` or, where that is 0, at the Unix socket `sock`."""

    inode: int
    sock: str
    base_url: str
    token: str
    secure: bool


@dataclass(slots=True)
class Answer:
    """Of one server; `problem`: why it could not be asked, empty where it could."""

    server: Server
    kernels: Sequence[KernelState] = ()
    problem: str = ""


@dataclass(slots=True)
class _Known:
    """`worked`: how it answered the last time; `spared`: ways by which it is not asked before
    `spared_until` (monotonic seconds), because it refused with the words `refusal`."""

    worked: Way | None = None
    spared: frozenset[Way] = frozenset()
    spared_until: float = 0.0
    refusal: str = ""
    env: dict[str, str] | None = None


@dataclass(slots=True)
class _Seen:
    """What root saw of a server before it gave its rights up. `root`: descriptor of the server's
    root directory, -1 where it is gone."""

    server: Server
    known: _Known
    doors: Sequence[Listener]
    stopped: bool
    root: int = -1


class Interview:
    def __init__(self, session: NodeSession) -> None:
        self._session = session
        self._known: dict[tuple[int, int], _Known] = {}
        self._proc = tree.PROC / str(session.init) / "root" / "proc"

    def ask(self, servers: Sequence[Server], deadline: float) -> list[Answer]:
        """To be called by a thread that ends afterwards: it takes the owner's rights for good.
        `deadline`: monotonic seconds. OSError where the kernel's tables can't be read."""
        own = [s for s in servers if self._session.uid == s.process.uids[1]]
        self._known = {s.key: self._known.get(s.key) or _Known() for s in own}
        with ExitStack() as stack:
            listening = listeners.tcp()
            seen = [self._seen(server, listening, stack) for server in own[:MOST_SERVERS]]
            if not seen:
                return []
            owner.become(tree.credentials(seen[0].server.process))
            answers = [a for one in seen if (a := self._answer(one, deadline)) is not None]
        if len(own) > MOST_SERVERS:
            answers.append(
                Answer(own[-1], problem=f"{len(own)} Jupyter servers are too many to ask")
            )
        return answers

    # -- as root ------------------------------------------------------------------------------

    def _seen(self, server: Server, listening: Mapping[int, Listener], stack: ExitStack) -> _Seen:
        process = self._proc / str(server.process.pid)
        known = self._known[server.key]
        if known.env is None:
            known.env = access.environment(str(process / "environ"))
        doors = [listening[i] for i in listeners.sockets_of(process) if i in listening]
        now = tree.read(server.process.pid, self._proc)
        seen = _Seen(server, known, doors, stopped=now is not None and now.state in "Tt")
        if now is None or now.start != server.process.start:
            return seen
        try:
            # A jump to where the process is: no name below a user's directory is looked up.
            seen.root = os.open(process / "root", os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return seen
        stack.callback(os.close, seen.root)
        return seen

    # -- as the owner -------------------------------------------------------------------------

    def _answer(self, one: _Seen, deadline: float) -> Answer | None:
        """None: it is no Jupyter server after all."""
        server = one.server
        if one.root < 0:
            return None  # it has just ended
        process = server.process
        found = access.find(one.root, process.inner, server.words, one.known.env or {})
        if not server.sure and not found[0].listed:
            return None
        try:
            if one.stopped:
                raise NoAnswer("it is stopped")
            return Answer(server, self._kernels(one, found, deadline))
        except NoAnswer as why:
            return Answer(server, problem=f"Jupyter server {process.pid} can't be asked: {why}")

    def _kernels(
        self, one: _Seen, found: Sequence[Access], deadline: float
    ) -> Sequence[KernelState]:
        known = one.known
        there = {door.inode for door in one.doors}
        ways = list(_ways(found, one.doors))
        if known.worked is not None and (known.worked.sock or known.worked.inode in there):
            # Also where the info file is no longer what it was: see access.find.
            ways.insert(0, known.worked)
        ways = list(dict.fromkeys(ways))[:MOST_TRIES]
        if not ways:
            raise NoAnswer("it does not listen")
        if known.spared.issuperset(ways) and time.monotonic() < known.spared_until:
            raise NoAnswer(known.refusal)
        reasons: list[NoAnswer] = []
        plain: set[int] = set()
        for way in ways:
            if way.secure and way.inode in plain:
                continue
            try:
                states = self._try(one, way, deadline)
            except NoAnswer as why:
                reasons.append(why)
                if isinstance(why, Refused) and not way.secure:
                    plain.add(way.inode)  # it speaks HTTP there, and so no TLS
            else:
                known.worked, known.spared = way, frozenset()
                return states
        refusal = next((why for why in reasons if isinstance(why, Refused)), None)
        if refusal is not None:
            known.spared, known.refusal = frozenset(ways), str(refusal)
            known.spared_until = time.monotonic() + SPARE
        raise refusal or reasons[0]

    def _try(self, one: _Seen, way: Way, deadline: float) -> Sequence[KernelState]:
        door = next((d for d in one.doors if d.inode == way.inode), None)
        to = UnixSocket(one.root, way.sock) if door is None else door
        try:
            with asking.connected(to, deadline) as channel:
                if door is None:
                    self._same_process(*asking.listens_there(channel), one.server.process)
                elif listeners.tcp().get(door.inode) != door:
                    # What was there before and after is what was connected to.
                    raise NoAnswer("it does not listen any more")
                return asking.kernels(
                    channel, way.base_url, way.token, secure=way.secure, deadline=deadline
                )
        except TimeoutError:
            raise NoAnswer("no answer") from None
        except OSError as error:
            raise NoAnswer(error.strerror or "no answer") from None

    def _same_process(self, pid: int, uid: int, server: Process) -> None:
        """By what the kernel says of the far end (unix(7), SO_PEERCRED)."""
        far = tree.read(pid) if pid > 0 and uid == self._session.uid else None
        if far is None or (far.start, far.inner) != (server.start, server.inner):
            raise NoAnswer("its socket is another process's")


def _ways(found: Sequence[Access], doors: Sequence[Listener]) -> Iterator[Way]:
    for by in found:
        at = [door for door in doors if door.port == by.port]
        if not by.listed:
            # the port may have been taken, and then the next one was
            at += [door for door in doors if door.port != by.port]
        places = [(0, by.sock)] if by.sock else [(door.inode, "") for door in at]
        for inode, sock in places:
            for token in by.tokens:
                for secure in (
                    (False, True) if by.secure is None and not sock else (bool(by.secure),)
                ):
                    yield Way(inode, sock, by.base_url, token, secure)
