"""Which nodes can restore a checkpoint, and for the others which requirement fails. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.job import Job
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import amount
from slurm_reclaim.policy import cards
from slurm_reclaim.stages.kinds import Places, kinds
from slurm_reclaim.stages.view import View

SILENT = "its agent is not heard of"
_FAILED = "a restore of this checkpoint failed there"
_MOST_FLAGS = 5
_MOST_REASONS = 3
_NETWORK = frozenset({"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs"})


def only_there(node: str) -> str:
    return f"its checkpoint is on {node} only until it is uploaded"


@dataclass(frozen=True, slots=True)
class Fit:
    """`unfit`: node -> the requirement that fails there; only nodes that the job could get. `key`:
    by which the view remembers it, where other sessions may have the same."""

    nodes: tuple[str, ...]
    unfit: dict[str, str]
    silence: bool = False  # whether agents are missing, so that waiting for them may help
    key: object = None

    def explain(self, most: int = 5) -> str:
        lines = [f"{node}: {reason}" for node, reason in sorted(self.unfit.items())]
        more = [f"and {len(lines) - most} more"] if len(lines) > most else []
        return "; ".join(lines[:most] + more) or "the partition has no node"


def fit(
    session: Session, job: Job, view: View, now: float, silent_after: float, only: str = ""
) -> Fit:
    """Every node of the job's partitions, told apart. `only`: the one that may have the only copy
    of the checkpoint ("": any can get it)."""
    known = kinds(job.partition, view, now, silent_after)
    needs, memo = session.needs, view.recall(now)
    whole, single = known.verdicts(
        needs, lambda facts: lacking(needs, facts), mounts_of(needs, memo), SILENT
    )
    # Thousands of held jobs share what fits.
    key = None if single else ("fit", job.partition, *whole)
    found = memo.get(key)
    if not isinstance(found, Fit):
        found = _fit(dict(known.each(whole, single)) | dict.fromkeys(known.unheard, SILENT), key)
        if key is not None:
            memo[key] = found
    bad = dict.fromkeys(session.bad_nodes, _FAILED)
    if not (single or bad or session.fence or only):
        return found
    unfit = dict.fromkeys(found.nodes, "") | found.unfit
    bad = {name: why for name, why in bad.items() if name in unfit}
    if session.fence:
        # S3: not anywhere else while the older incarnation may live there.
        lost = f"{session.fence} was lost and may still run the session"
        bad |= {name: lost for name in unfit if name != session.fence}
    if only:
        bad |= {name: only_there(only) for name in unfit if name != only}
    return _fit(unfit | bad)


def _fit(unfit: Mapping[str, str], key: object = None) -> Fit:
    """From node -> the requirement that fails there, "" where it fits."""
    return Fit(
        tuple(name for name, why in unfit.items() if not why),
        {name: why for name, why in unfit.items() if why},
        SILENT in unfit.values(),
        key,
    )


def mounts_of(needs: Needs | None, memo: dict[object, object]) -> Callable[[Places], str]:
    """What is wrong with what a node has mounted, each kind of it looked at once."""
    wanted = () if needs is None else needs.mounts
    seen = memo.setdefault(("mounts", wanted), {})
    assert isinstance(seen, dict)

    def look(places: Places) -> str:
        if not wanted:
            return ""
        if places not in seen:
            seen[places] = _mounts(wanted, places)
        return str(seen[places])

    return look


def stranded(
    needs: Needs | None, partition: str, view: View, now: float, silent_after: float
) -> str | None:
    """Why no node of the partition can restore a checkpoint until one of them is changed; "" where
    one could. None: not known, for no agent of a node that may has been heard of yet."""
    if needs is None:
        return None
    known = kinds(partition, view, now, silent_after)
    look = mounts_of(needs, view.recall(now))
    whole, single = known.verdicts(needs, lambda facts: mismatch(needs, facts), look)
    if not all(whole) and not single:
        return ""
    reasons: dict[str, list[str]] = {}
    for name, why in known.each(whole, single):
        if not why:
            return ""
        reasons.setdefault(why, []).append(name)
    if known.unheard or not reasons:
        return None
    named = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"
        for why, names in sorted(reasons.items())
    ]
    return "; ".join(named[:_MOST_REASONS])


def lacking(needs: Needs | None, facts: NodeFacts) -> str:
    """The requirement that a node with `facts` fails, "" where it meets all of them."""
    if not facts.plugin_seen:
        return facts.plugin_problem or "the SPANK plugin does not work there"
    if not facts.criu_ok:
        return f"CRIU is not usable: {facts.criu_problem or 'unknown problem'}"
    if not facts.store_ok:
        return f"the store is not usable: {facts.store_problem or 'unknown problem'}"
    if needs is None:
        return ""
    return mismatch(needs, facts) or _gpus(needs, facts, facts.gpu_problem)


def mismatch(needs: Needs, facts: NodeFacts) -> str:
    """What of the node is not as the checkpoint has it, and stays so until somebody changes the
    node; not what may be mended by itself, such as a store that is not mounted."""
    checks = (_platform, _processor, _libc, _all_mounted, _memory)
    why = next((why for check in checks if (why := check(needs, facts))), "")
    if facts.gpu_problem and not (facts.gpus and facts.gpu_driver):
        return why  # what GPUs it has is not known
    return why or _gpus(needs, facts, "")


def _gpus(needs: Needs, facts: NodeFacts, problem: str) -> str:
    if needs.gpu is None:
        return ""
    return cards.node_lacks(needs.gpu, facts.gpus, facts.gpu_driver, problem)


def _platform(needs: Needs, facts: NodeFacts) -> str:
    if facts.arch != needs.arch:
        return f"it is {facts.arch}, the checkpoint was made on {needs.arch}"
    if _version(facts.kernel) < _version(needs.kernel):
        return f"its kernel {facts.kernel} is older than {needs.kernel}"
    if _version(facts.criu) < _version(needs.criu):
        return f"its CRIU {facts.criu} is older than {needs.criu}"
    return ""


def _processor(needs: Needs, facts: NodeFacts) -> str:
    """More features than the checkpoint's CPU had are never asked for again; fewer are SIGILL. The
    buffers for saved registers were made for one size."""
    missing = _missing(needs.cpu_flags, facts.cpu_flags)
    if missing and not facts.cpu_flags:
        return "the features of its CPU are not known"
    if missing:
        more = f" and {len(missing) - _MOST_FLAGS} more" if len(missing) > _MOST_FLAGS else ""
        return f"its CPU lacks {', '.join(missing[:_MOST_FLAGS])}{more}"
    if needs.xsave and facts.xsave != needs.xsave:
        has = f"{facts.xsave} bytes" if facts.xsave else "an unknown number of bytes"
        return f"its CPU saves {has} of registers (xsave), the checkpoint's {needs.xsave}"
    return ""


@functools.lru_cache(maxsize=256)
def _missing(needed: str, there: str) -> tuple[str, ...]:
    return tuple(sorted(set(needed.split()) - set(there.split())))


def _libc(needs: Needs, facts: NodeFacts) -> str:
    if not needs.glibc_build or not facts.glibc_build:
        return ""  # the mapped files are looked at on the node, before anything starts
    if facts.glibc != needs.glibc:
        return f"its glibc is {facts.glibc}, the checkpoint has {needs.glibc} mapped"
    if facts.glibc_build != needs.glibc_build:
        theirs, ours = facts.glibc_build[:12], needs.glibc_build[:12]
        return f"its glibc {facts.glibc} is build {theirs}, the checkpoint has build {ours} mapped"
    return ""


def _all_mounted(needs: Needs, facts: NodeFacts) -> str:
    return _mounts(needs.mounts, facts.mounts)


def _mounts(wanted: tuple[str, ...], places: Places) -> str:
    """Of another type counts where one of the two is on the network and the other is not: then
    they are not the same files."""
    if places is None:
        return ""
    there = dict(_place(each) for each in places)
    for each in wanted:
        point, kind = _place(each)
        has = there.get(point, "")
        if _automounted(point, there):
            continue
        if not has:
            return f"it has no {point} ({kind}) mounted"
        if (has in _NETWORK) != (kind in _NETWORK):
            return f"its {point} is {has}, the checkpoint's files lie on {kind}"
    return ""


def _place(text: str) -> tuple[str, str]:
    point, _, kind = text.rpartition(" ")
    return point, kind


def _automounted(point: str, there: Mapping[str, str]) -> bool:
    """Whether it may be mounted as soon as somebody looks."""
    return any(
        kind == "autofs" and (point == place or point.startswith(f"{place.rstrip('/')}/"))
        for place, kind in there.items()
    )


def _memory(needs: Needs, facts: NodeFacts) -> str:
    """Only what can't be otherwise when the job starts: what is free then is looked at then."""
    if facts.memory_total and needs.memory > facts.memory_total:
        return (
            f"it has {amount(facts.memory_total)} of memory, "
            f"the checkpoint needs {amount(needs.memory)}"
        )
    if needs.hugepages > facts.hugepages:
        return (
            f"it has {amount(facts.hugepages)} in huge pages, "
            f"the checkpoint needs {amount(needs.hugepages)}"
        )
    return ""


@functools.lru_cache(maxsize=1024)  # of a site's nodes a few differ, and all are compared
def _version(text: str) -> tuple[int, ...]:
    """Kernel releases carry the distribution's own numbers behind the first three."""
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
