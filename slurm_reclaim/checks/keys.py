"""The keys of the store: on this host, and the same wherever an agent reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from slurm_reclaim.checks.host import Host, mode, others_may
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.schema import Store
from slurm_reclaim.model.status import NodeStatus
from slurm_reclaim.model.storekey import parse, sealing

_FAMILY = Family("store")
_NODES = Family("nodes")
_NAME = "same keys everywhere"


def judge(host: Host, store: Store) -> list[Check]:
    """On a compute node, where there must be keys."""
    status = host.stat(store.keys)
    if status is None:
        return [
            _FAMILY.failed(
                "store keys",
                f"there is no {store.keys}: nothing can be hibernated or restored here",
                "the first one is made with `reclaim key new`; else copy the file of another node",
            )
        ]
    if others_may(status, 7) or status.st_uid != host.root_uid:
        private = _FAMILY.failed(
            "store keys private",
            f"{store.keys} is {mode(status)}, uid {status.st_uid}",
            f"chown root:root {store.keys}; chmod 0600 {store.keys}; if others could read it: "
            "reclaim key new",
        )
    elif culprit := host.tampered(store.keys):
        private = _FAMILY.failed(
            "store keys private",
            f"others than root can change {culprit}",
            f"chown root:root {culprit}; chmod go-w {culprit}",
        )
    else:
        private = _FAMILY.ok("store keys private", f"{store.keys} is {mode(status)} and root's")
    return [_readable(host, store), private]


def _readable(host: Host, store: Store) -> Check:
    try:
        keys = parse(host.read(store.keys))
    except (OSError, ValueError) as error:
        return _FAMILY.failed(
            "store keys", f"{store.keys}: {error}", "copy the file of another node"
        )
    first = sealing(keys, time.time()).id
    more = f", {len(keys) - 1} more open what they sealed" if len(keys) > 1 else ""
    return _FAMILY.ok("store keys", f"key {first} seals{more}")


def everywhere(nodes: Sequence[NodeStatus], host: Host, store: Store, silent_after: float) -> Check:
    """The ids that agents report, compared with each other and, for root, with this host's."""
    heard = [n for n in nodes if 0 <= n.age <= silent_after]
    if not heard:
        return _NODES.unchecked(_NAME, "no agent has reported")
    ids = {n.name: frozenset(n.facts.store_keys) for n in heard}
    here = _here(host, store)
    some = Counter(known for known in ids.values() if known)
    wanted = here or (some.most_common(1)[0][0] if some else frozenset())
    wrong = sorted(name for name, known in ids.items() if known != wanted)
    copy = (
        f"copy one {store.keys} to every compute node (root:root, 0600); agents see it by "
        "themselves"
    )
    if not wanted:
        return _NODES.failed(
            _NAME, "no node has any", f"make the first with `reclaim key new`, then {copy}"
        )
    listed = ", ".join(sorted(wanted))
    if not wrong:
        return _NODES.ok(_NAME, f"{listed} on {len(heard)} node{'s' * (len(heard) > 1)}")
    where = "this host has" if here else "most nodes have"
    said = "; ".join(f"{n} has {', '.join(sorted(ids[n])) or 'none'}" for n in wrong[:5])
    more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    return _NODES.failed(_NAME, f"{where} {listed}; {said}{more}", copy)


def _here(host: Host, store: Store) -> frozenset[str]:
    """None where there is no file, as on a controller that needs none, or it is not ours to see."""
    if host.uid != 0 or not host.exists(store.keys):
        return frozenset()
    try:
        return frozenset(key.id for key in parse(host.read(store.keys)))
    except (OSError, ValueError):
        return frozenset()
