"""CRIU on a compute node: there, safe, and able to do its work without root."""

from __future__ import annotations

import re

from slurm_reclaim.checks.host import NOT_FOUND, Host, Ran
from slurm_reclaim.checks.result import Check, Family

_FAMILY = Family("criu")

FLOOR = (4, 2, 1)
_VERSION = re.compile(r"^Version:\s*(\d+(?:\.\d+)*)", re.MULTILINE)
_NOBODY = "65534"
# What a restore is run with; see docs/safety.md.
_CAPABILITIES = "+checkpoint_restore,+sys_ptrace"


def judge(host: Host, criu: str) -> list[Check]:
    ran = host.run([criu, "--version"])
    if ran.code == NOT_FOUND:
        return [
            _FAMILY.failed(
                "criu version",
                ran.problem,
                "install CRIU 4.2.1 or later, or say where it is: agent.criu",
            )
        ]
    return [version(ran.out), works(_as_nobody(host, criu), criu)]


def version(text: str) -> Check:
    name = "criu version"
    found = _VERSION.search(text)
    if found is None:
        return _FAMILY.failed(name, f"can't be read: {text.strip()[:80]!r}", "install CRIU 4.2.1")
    numbers = tuple(int(part) for part in found[1].split("."))
    return _FAMILY.judge(
        name,
        numbers >= FLOOR,
        found[1],
        "4.2.1 or later is needed. Before it, a process could forge its own identity in the image "
        "(CVE-2026-18107) and come back as root, and kernels 6.13 and later are not understood",
    )


def works(ran: Ran, criu: str) -> Check:
    """`criu check`, the way sessions are dumped: as an ordinary user with two capabilities."""
    name = "criu check"
    if ran.code == NOT_FOUND:
        return _FAMILY.unchecked(name, ran.problem, "setpriv (util-linux) is needed for this check")
    if ran.code == 0:
        return _FAMILY.ok(name, "as an ordinary user: looks good")
    # tun devices are tried and not needed: CRIU says so and looks good all the same.
    said = [line.strip() for line in (ran.err + ran.out).splitlines()]
    complaints = [line for line in said if line.startswith("Error") and "tun.c" not in line]
    return _FAMILY.failed(
        name,
        complaints[0] if complaints else ran.problem,
        f"the whole answer: {criu} check --unprivileged",
    )


def _as_nobody(host: Host, criu: str) -> Ran:
    return host.run(
        ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups",
         f"--inh-caps={_CAPABILITIES}", f"--ambient-caps={_CAPABILITIES}", "--",
         criu, "check", "--unprivileged"]
    )  # fmt: skip
