"""The commands of `lab`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from reclaim_lab.errors import LabError
from reclaim_lab.places import LabPlaces, node_names
from reclaim_lab.shell import say

if TYPE_CHECKING:
    from reclaim_lab.cluster import Cluster

_EXEC_USAGE = "usage: lab [--name NAME] exec NODE [--user NAME] [--] CMD..."


def main(arguments: list[str]) -> int:
    # Directories made here become roots and homes that users of the nodes must be able to enter.
    os.umask(0o022)
    try:
        lab, words = _without_name(arguments)
        if words[:1] == ["exec"]:
            _exec(lab, words[1:])
        return _other(arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130


def _without_name(arguments: list[str]) -> tuple[str, list[str]]:
    if arguments[:1] == ["--name"] and len(arguments) > 1:
        return arguments[1], arguments[2:]
    if arguments and arguments[0].startswith("--name="):
        return arguments[0][len("--name=") :], arguments[1:]
    return "lab", arguments


def _exec(lab: str, words: list[str]) -> NoReturn:
    """Does not return when all is well: this process becomes the command."""
    from reclaim_lab.node import Node  # only what is needed: tests call this hundreds of times

    node, user, rest = "", "root", list(words)
    while rest and (not node or rest[0].startswith("-")):
        word = rest.pop(0)
        if word == "--":
            break
        if word in ("--user", "-u") and rest:
            user = rest.pop(0)
        elif word.startswith("--user="):
            user = word[len("--user=") :]
        elif word.startswith("-"):
            raise LabError(f"{word} is not an option of exec; {_EXEC_USAGE}")
        else:
            node = word
    if not node or not rest:
        raise LabError(_EXEC_USAGE)
    places = LabPlaces(lab)
    if not places.node_state(node).is_dir():
        raise LabError(f"lab {lab} has no node {node!r}: `lab status` lists them")
    entering = Node(places, node).entering(rest, user=user)
    sys.stdout.flush()
    os.execvp(entering[0], entering)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab", description="A real Slurm cluster on this machine; see tests/cluster/README.md."
    )
    parser.add_argument("--name", default="lab", help="which lab (default: lab)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="build what is missing, boot, install, start everything")
    up.add_argument("--nodes", type=int, help="compute nodes n1..nN (default: as before, or 2)")
    up.add_argument("--gpus", type=int, help="simulated GPUs of each node (default: as before, 0)")
    commands.add_parser("exec", help="run a command on a node: exec NODE [--user NAME] [--] CMD...")
    for name, text in (("kill", "power failure"), ("boot", "power back on")):
        commands.add_parser(name, help=text).add_argument("node")
    for name in ("start-daemon", "stop-daemon", "restart-daemon"):
        each = commands.add_parser(name, help=f"{name[:-7]} one daemon of a node")
        each.add_argument("node")
        each.add_argument("daemon")
        if name != "start-daemon":
            each.add_argument("--kill", action="store_true", help="with SIGKILL, not SIGTERM")
    logs = commands.add_parser("logs", help="print a daemon's log")
    logs.add_argument("node")
    logs.add_argument("daemon")
    commands.add_parser("install", help="install this checkout again on a running lab")
    commands.add_parser("status", help="what runs")
    down = commands.add_parser("down", help="stop everything")
    down.add_argument("--purge", action="store_true", help="and forget the nodes' disks")
    return parser


def _other(arguments: list[str]) -> int:
    from reclaim_lab.cluster import Cluster
    from reclaim_lab.layers import locked
    from reclaim_lab.places import cache_dir

    options = _parser().parse_args(arguments)
    cluster = Cluster(options.name)
    if options.command in ("status", "logs"):
        return _status(cluster) if options.command == "status" else _logs(cluster, options)
    started = time.monotonic()
    lock = cache_dir() / "locks" / f"lab-{options.name}"
    with locked(lock, f"another command on lab {options.name}"):
        if options.command == "up":
            cluster.up(options.nodes, options.gpus)
            names = ", ".join(node_names(cluster.settings().nodes))
            say(f"{options.name} is up ({names}) in {time.monotonic() - started:.1f} s")
        elif options.command == "install":
            cluster.install()
            say(f"installed in {time.monotonic() - started:.1f} s")
        elif options.command == "down":
            cluster.down(options.purge)
        elif options.command == "kill":
            cluster.node(options.node).kill()
        elif options.command == "boot":
            cluster.boot(options.node)
        else:
            _daemon(cluster, options)
    return 0


def _daemon(cluster: Cluster, options: argparse.Namespace) -> None:
    from reclaim_lab import daemons

    node = cluster.node(options.node)
    daemon = daemons.by_name(options.daemon)
    if not daemon.belongs_on(node):
        raise LabError(f"{daemon.name} has no place on {node.name}")
    if options.command != "start-daemon":
        daemons.stop(node, daemon, signal.SIGKILL if options.kill else signal.SIGTERM)
    if options.command != "stop-daemon" and not daemons.start(node, daemon):
        raise LabError(f"{daemon.name}.service is not installed on {node.name}")


def _logs(cluster: Cluster, options: argparse.Namespace) -> int:
    from reclaim_lab import daemons

    node, daemon = cluster.node(options.node), daemons.by_name(options.daemon)
    shown = [
        path for path in dict.fromkeys([daemon.log, daemon.output]) if node.path(path).exists()
    ]
    if not shown:
        raise LabError(f"{daemon.name} has written no log on {node.name}")
    for path in shown:
        sys.stdout.write(node.path(path).read_text(errors="replace"))
    return 0


def _status(cluster: Cluster) -> int:
    from reclaim_lab import daemons

    up = True
    for node in cluster.nodes():
        process = node.init()
        if process is None:
            up = False
            print(f"{node.name:4} down")
            continue
        states = []
        for daemon in daemons.DAEMONS:
            installed = daemon.argv or daemons.unit_of(node, daemon)
            if daemon.belongs_on(node) and installed:
                pid = daemons.pid_of(node, daemon)
                up = up and pid is not None
                states.append(f"{daemon.name} {pid or 'DOWN'}")
        print(f"{node.name:4} up (init {process.pid})  " + "  ".join(states))
    return 0 if up else 3
