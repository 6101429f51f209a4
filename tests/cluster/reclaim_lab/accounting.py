"""Cluster, account and users in slurmdbd: set once, before slurmctld starts for the first time."""

from __future__ import annotations

from reclaim_lab.node import Node

ACCOUNT = "users"
PLAIN = ("alice", "bob")


def set_up(ctl: Node, cluster: str) -> None:
    """What is there already is left as it is: tests may have changed it."""

    def ask(*words: str) -> list[str]:
        said = ctl.run(["sacctmgr", "-nP", *words], doing="asking slurmdbd")
        return said.split()

    def tell(*words: str) -> None:
        ctl.run(["sacctmgr", "-iQ", *words], doing=f"sacctmgr {' '.join(words[:3])}")

    if cluster not in ask("list", "cluster", "format=cluster"):
        tell("add", "cluster", cluster)
    users = ask("list", "user", "format=user")
    if ACCOUNT not in ask("list", "account", "format=account"):
        tell("add", "account", ACCOUNT, "Description=users", "Organization=lab")
    plain = [name for name in PLAIN if name not in users]
    if plain:
        tell("add", "user", ",".join(plain), f"Account={ACCOUNT}")
    if "olga" not in users:
        tell("add", "user", "olga", f"Account={ACCOUNT}", "AdminLevel=Operator")
    if "slurm-reclaim" not in users:
        tell("add", "user", "slurm-reclaim", "Account=root", "AdminLevel=Administrator")
