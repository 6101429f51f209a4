"""Configuration of the machines: the lab's, and what systemd, cgroup v2 and NFS change of it."""

from __future__ import annotations

import re

from reclaim_lab import install, slurm_files, ssh
from reclaim_lab.node_tree import File
from reclaim_vm.places import NODES, hosts

COMPUTE = [name for name in NODES if name != "ctl"]

# As most sites have it: root of the nodes is nobody in the homes. The store needs another export.
EXPORTS = """# Written by tests/vm/vm.
/shared 10.78.0.0/24(rw,sync,no_subtree_check,no_root_squash,fsid=1)
/shared/home 10.78.0.0/24(rw,sync,no_subtree_check,root_squash,fsid=2)
/srv/squash 10.78.0.0/24(rw,sync,no_subtree_check,root_squash,fsid=3)
"""
NFS_CONF = "[nfsd]\nvers3=n\nudp=n\nthreads=8\ngrace-time=10\nlease-time=10\n"

_OPTIONS = "nfs4 rw,hard,_netdev,nofail,x-systemd.mount-timeout=60 0 0"
FSTAB = f"""# Written by tests/vm/vm.
ctl:/shared /shared {_OPTIONS}
ctl:/shared/home /shared/home {_OPTIONS}
ctl:/srv/squash /squash {_OPTIONS}
"""

# Slurm's own defaults: systemd gives slurmd a scope for its steps.
CGROUP_CONF = """# Written by tests/vm/vm.
CgroupPlugin=autodetect
ConstrainCores=yes
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
ConstrainDevices=yes
"""


# Where QEMU computes every instruction a start takes a minute or more, and an answer seconds.
SLOW = "[Service]\nTimeoutStartSec=600s\n"


def slurm_conf(cluster: str) -> str:
    text = slurm_files.slurm_conf(cluster, len(COMPUTE), 0)
    # Debian's units give slurmd and slurmctld a run directory each.
    return re.sub(r"(?m)^Slurm(ctld|d)PidFile=.*\n", "", text).replace(
        "tests/cluster/lab", "tests/vm/vm"
    )


def all_files(cluster: str, munge_key: bytes, store_keys: bytes) -> dict[str, File]:
    """By path, without the leading slash."""

    def text(content: str, mode: int = 0o644) -> File:
        return File(content.encode(), mode)

    return {
        "etc/hosts": text(hosts()),
        "etc/slurm/slurm.conf": text(slurm_conf(cluster)),
        "etc/slurm/cgroup.conf": text(CGROUP_CONF),
        "etc/slurm/slurmdbd.conf": text(slurm_files.slurmdbd_conf(), 0o600),
        "etc/slurm/plugstack.conf": text("include /etc/slurm/plugstack.conf.d/*.conf\n"),
        "etc/slurm/plugstack.conf.d/slurm-reclaim.conf": text("optional reclaim.so timeout=60\n"),
        "etc/slurm-reclaim/conf.d/lab.toml": text(install.SETTINGS),
        "etc/ssh/sshd_config.d/lab.conf": text(ssh.SERVER),
        "etc/ssh/ssh_config.d/lab.conf": text(ssh.CLIENT),
        "etc/pam.d/sshd": text(ssh.PAM),
        "etc/munge/munge.key": File(munge_key, 0o400),
        "etc/slurm-reclaim/store.keys": File(store_keys, 0o600),
        "etc/exports": text(EXPORTS),
        "etc/nfs.conf.d/vm.conf": text(NFS_CONF),
        "etc/fstab": text(FSTAB),
        "etc/systemd/system/reclaimd.service.d/slow.conf": text(SLOW),
        "etc/systemd/system/reclaim-agent.service.d/slow.conf": text(SLOW),
    }


def left_out_on(node: str) -> tuple[str, ...]:
    """Of all files those that have no place there."""
    if node == "ctl":
        return (*install.left_out_on(node), "etc/fstab", "etc/pam.d/sshd")
    return (*install.left_out_on(node), "etc/exports", "etc/nfs.conf.d/vm.conf")


CTL = """
set -eu
systemctl daemon-reload
systemctl restart systemd-journald systemd-logind 2>/dev/null || :
mkdir -p /shared/home /srv/squash
install -d -m 0700 /shared/reclaim
touch /shared/reclaim/.slurm-reclaim-store
chmod 755 /shared /shared/home
for user in {users}; do
    [ -d /shared/home/$user ] || install -d -o $user -g $user -m 700 /shared/home/$user
done
systemctl enable -q --now nfs-server munge mariadb
exportfs -ra
for log in slurmctld slurmdbd; do touch /var/log/$log.log; chown slurm:slurm /var/log/$log.log; done
install -d -o slurm -g slurm -m 755 /var/spool/slurmctld /run/slurm
echo 'd /run/slurm 0755 slurm slurm -' > /etc/tmpfiles.d/vm-slurm.conf
mariadb -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db;
    CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
systemctl enable -q --now slurmdbd
for try in $(seq 100); do sacctmgr -nP list cluster >/dev/null 2>&1 && break; sleep 0.2; done
"""

CTL_SLURM = """
set -eu
systemctl enable -q --now slurmctld reclaimd
"""

# docs/install.md 6; munge and slurmd are the site's.
COMPUTE_NODE = """
set -eu
mkdir -p /shared /squash
systemctl daemon-reload
systemctl start remote-fs.target
mountpoint -q /shared && mountpoint -q /shared/home && mountpoint -q /squash
systemd-tmpfiles --create /usr/lib/tmpfiles.d/slurm-reclaim.conf
systemctl enable -q --now munge slurmd reclaim-agent
"""
