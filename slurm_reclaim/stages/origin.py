"""Whose word it is: what is said of a node is taken from that node only.

Root of any host can have MUNGE vouch for uid 0, and so the uid does not tell one node from another.
Two addresses do: the one that the connection comes from, and the one of the host whose munged made
the credential. Both must be the node's own. The first can't be chosen by who speaks; the second
can, by root who has the MUNGE key, but not by a user who lends a connection of another node.
"""

from __future__ import annotations

import ipaddress

from slurm_reclaim.errors import Unavailable, WrongNode
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.job import Node
from slurm_reclaim.model.place import parse_place
from slurm_reclaim.stages.desk import Desk

_HINT = (
    "if the node really has this address, name it in controller.node_addresses; "
    "is its agent's SLURMD_NODENAME right?"
)


async def see_origin(desk: Desk, caller: Caller, name: str) -> None:
    """Raises WrongNode where `caller` does not speak from the node `name`, Unavailable where that
    can't be told yet."""
    if not desk.settings.config.controller.verify_nodes or desk.hosts is None:
        return
    node = desk.view.nodes.get(name)
    if node is None and not desk.view.asked:
        raise Unavailable("Slurm has not told which nodes there are yet")
    if node is None:
        desk.view.stranger(desk.clock.now())
        raise WrongNode(
            f"Slurm knows no node {name!r}", hint="is its agent's SLURMD_NODENAME right?"
        )
    try:
        for address, verb in ((caller.peer, "came from"), (caller.signed_on, "was signed on")):
            if address and not await _is_of(desk, node, address):
                raise WrongNode(
                    f"what was said of node {name} {verb} {address}, which is not that node's",
                    hint=_HINT,
                )
        if not caller.peer:
            raise WrongNode(f"where the word of node {name} came from can't be seen", hint=_HINT)
    except WrongNode as refusal:
        # Not of nodes that nobody knows: who makes up names must not fill the journal.
        if desk.refused.get(name) != refusal.message:
            desk.refused[name] = refusal.message
            desk.note_all("wrong-node", refusal.message)
        raise
    desk.refused.pop(name, None)


async def _is_of(desk: Desk, node: Node, address: str) -> bool:
    assert desk.hosts is not None
    names = node.hosts or (node.name,)
    known = await desk.hosts.addresses(names)
    if address in known or address in (known := await desk.hosts.addresses(names, again=True)):
        return True
    seen = ipaddress.ip_address(address)
    if seen.is_loopback:
        # The controller's host is a compute node as well.
        return any([await desk.hosts.ours(one) for one in known])
    if any(
        seen in place.network
        for place in map(parse_place, desk.settings.config.controller.node_addresses)
        if node.name in desk.names.expand(place.nodes)
    ):
        return True
    if not known:
        raise Unavailable(
            f"where node {node.name} is can't be told: no address is known of {', '.join(names)}",
            hint=_HINT,
        )
    return False
