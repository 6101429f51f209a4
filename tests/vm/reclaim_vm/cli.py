"""The commands of `vm`: those of the test cluster's `lab`, with machines in place of namespaces."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from typing import NoReturn

from reclaim_lab.errors import LabError
from reclaim_lab.layers import locked
from reclaim_lab.places import cache_dir
from reclaim_lab.shell import say
from reclaim_vm.cluster import Cluster
from reclaim_vm.machine import Hardware

NAMES = {"munged": "munge", "mariadbd": "mariadb", "sshd": "ssh"}
"""Units that aren't called like the daemon."""


def main(arguments: list[str]) -> int:
    os.umask(0o022)
    try:
        return _do(_parser().parse_args(arguments))
    except (LabError, OSError) as error:
        print(f"vm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("vm: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vm", description="A Slurm cluster of virtual machines; see tests/vm/README.md."
    )
    parser.add_argument("--name", default="vm", help="which cluster (default: vm)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="build what is missing, boot, install, start everything")
    # What a lab's `up` takes, so that its tests can be run here.
    up.add_argument("--nodes", type=int, help=argparse.SUPPRESS)
    up.add_argument("--gpus", type=int, help=argparse.SUPPRESS)
    boot = commands.add_parser("boot", help="power back on")
    boot.add_argument("node")
    for each in (up, boot):
        for field in dataclasses.fields(Hardware):
            each.add_argument(f"--{field.name}", help=f"default: as before, or {field.default}")
    run = commands.add_parser("exec", help="run a command: exec [--user NAME] NODE -- CMD...")
    run.add_argument("--user", default="root")
    run.add_argument("node")
    run.add_argument("words", nargs=argparse.REMAINDER)
    commands.add_parser("kill", help="power failure").add_argument("node")
    for name in ("start-daemon", "stop-daemon", "restart-daemon"):
        each = commands.add_parser(name, help=f"{name[:-7]} one daemon of a machine")
        each.add_argument("node")
        each.add_argument("daemon")
        if name != "start-daemon":
            each.add_argument("--kill", action="store_true", help="with SIGKILL, not SIGTERM")
    logs = commands.add_parser("logs", help="print what a daemon logged")
    logs.add_argument("node")
    logs.add_argument("daemon")
    commands.add_parser("console", help="the end of a machine's console").add_argument("node")
    commands.add_parser("install", help="install this checkout again")
    commands.add_parser("status", help="what runs")
    down = commands.add_parser("down", help="stop everything")
    down.add_argument("--purge", action="store_true", help="and forget the machines' disks")
    return parser


def _do(options: argparse.Namespace) -> int:
    cluster = Cluster(options.name)
    if options.command == "exec":
        _exec(cluster, options)
    if options.command == "status":
        fine, lines = cluster.status()
        print("\n".join(lines))
        return 0 if fine else 3
    if options.command == "console":
        print(cluster.machine(options.node).console_tail(60).replace(" | ", "\n"))
        return 0
    if options.command == "logs":
        unit = NAMES.get(options.daemon, options.daemon)
        script = f"journalctl -q --no-pager -o cat -u {unit}; cat /var/log/{options.daemon}.log"
        print(cluster.machine(options.node).ask(["sh", "-c", script + " || :"], timeout=60) or "")
        return 0
    lock = cache_dir() / "locks" / f"vm-{options.name}"
    with locked(lock, f"another command on {options.name}"):
        _change(cluster, options)
    return 0


def _change(cluster: Cluster, options: argparse.Namespace) -> None:
    started = time.monotonic()
    if options.command in ("up", "boot"):
        if getattr(options, "nodes", None) not in (None, 1, 2) or getattr(options, "gpus", None):
            raise LabError("there are two nodes without GPUs, no more")
        fields = [field.name for field in dataclasses.fields(Hardware)]
        changes = {f: getattr(options, f) for f in fields if getattr(options, f) is not None}
        if options.command == "up":
            cluster.up(changes)
            say(f"{options.name} is up in {time.monotonic() - started:.1f} s")
        else:
            cluster.boot(options.node, changes)
    elif options.command == "install":
        cluster.install()
    elif options.command == "down":
        cluster.down(options.purge)
    elif options.command == "kill":
        cluster.machine(options.node).kill()
    else:
        _daemon(cluster, options)


def _daemon(cluster: Cluster, options: argparse.Namespace) -> None:
    unit = NAMES.get(options.daemon, options.daemon)
    verb = options.command.removesuffix("-daemon")
    script = f"systemctl {verb} {unit}"
    if getattr(options, "kill", False):
        script = f"systemctl kill --kill-whom=main -s KILL {unit}; {script}"
    machine = cluster.machine(options.node)
    machine.run(["sh", "-c", script], doing=f"{verb} of {unit} on {options.node}")


def _exec(cluster: Cluster, options: argparse.Namespace) -> NoReturn:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise LabError("usage: vm exec [--user NAME] NODE -- CMD...")
    entering = cluster.machine(options.node).entering(words, user=options.user)
    sys.stdout.flush()
    os.execvp(entering[0], entering)
