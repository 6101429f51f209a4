"""`reclaim check` on a cluster that is well, and on one in which something is not."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.cluster
STORE = "/shared/reclaim"
STACK = "/etc/slurm/plugstack.conf.d/slurm-reclaim.conf"
RELAY = "/usr/libexec/slurm-reclaim/reclaim-relay"
CONF = "/etc/slurm/slurm.conf"


def checked(lab, node: str, user: str = "root") -> tuple[int, dict[str, dict]]:
    done = lab.exec(node, "reclaim", "check", "--json", user=user, check=False)
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)["checks"]}


def away(path: str) -> tuple[str, str]:
    return f"mv {path} {path}.away", f"mv {path}.away {path}"


# What is broken and mended, by commands on n1 or as a daemon there that is stopped; the check.
BROKEN = {
    "criu": (("chmod -x /usr/sbin/criu", "chmod +x /usr/sbin/criu"), "criu version"),
    "store": (away(STORE), "store"),
    "its mode": ((f"chmod 755 {STORE}", f"chmod 700 {STORE}"), "store private"),
    "its marker": (away(f"{STORE}/.slurm-reclaim-store"), "store marked"),
    "its keys": (away("/etc/slurm-reclaim/store.keys"), "store keys"),
    "plugstack": (away(STACK), "plugstack.conf"),
    "relay": (away(RELAY), "reclaim-relay"),
    "agent": ("reclaim-agent", "agent socket"),
    "munged": ("munged", "munge"),
}


def test_a_cluster_that_is_well(lab):
    every = {name for _, name in BROKEN.values()} - {"store"}
    for node, wanted in (("n1", every), ("ctl", {"munge", "JobRequeue", "controller account"})):
        code, found = checked(lab, node)
        assert {name: c["what"] for name, c in found.items() if c["verdict"] == "failed"} == {}
        assert code == 0
        assert wanted <= found.keys()


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_missing_is_named_with_a_hint(lab, what):
    how, name = BROKEN[what]
    if isinstance(how, str):
        lab.stop_daemon("n1", how)
    else:
        lab.exec("n1", "sh", "-c", how[0])
    try:
        code, found = checked(lab, "n1")
    finally:
        if isinstance(how, str):
            lab.start_daemon("n1", how)
        else:
            lab.exec("n1", "sh", "-c", how[1])
    assert code == 1
    assert found[name]["verdict"] == "failed"
    assert found[name]["hint"]


def test_a_setting_of_slurms_that_is_wrong_is_named(lab):
    try:
        lab.exec("ctl", "sed", "-i", "s/^JobRequeue=1/JobRequeue=0/", CONF)
        lab.exec("ctl", "scontrol", "reconfigure")
        _, found = checked(lab, "ctl")
    finally:
        lab.exec("ctl", "sed", "-i", "s/^JobRequeue=0/JobRequeue=1/", CONF)
        lab.exec("ctl", "scontrol", "reconfigure")
    assert (found["JobRequeue"]["verdict"], found["JobRequeue"]["what"]) == ("failed", "0")
    assert "set JobRequeue=1" in found["JobRequeue"]["hint"]
