"""Logins on the compute nodes as sites allow them: sshd with pam_slurm_adopt, for those only who
have a job there, and into that job's extern step."""

from __future__ import annotations

from reclaim_lab.node import Node

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
USERS = ("alice", "bob")

# Read after Debian's own settings, of which the first that is said counts: UsePAM yes is there.
SERVER = f"""# Written by tests/cluster/lab.
HostKey {HOST_KEY}
PasswordAuthentication no
"""

# Nothing outside of the lab can be reached, and a node with a new disk has a new key.
CLIENT = """# Written by tests/cluster/lab.
Host *
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
"""

PAM = """# Written by tests/cluster/lab: Debian's file without what greets people.
@include common-auth
account    required     pam_nologin.so
@include common-account
account    required     pam_slurm_adopt.so
session    required     pam_loginuid.so
session    optional     pam_keyinit.so force revoke
@include common-session
session    required     pam_limits.so
session    required     pam_env.so
@include common-password
"""

PREPARE_SERVER = f"""mkdir -p /run/sshd
[ -e {HOST_KEY} ] || ssh-keygen -q -t ed25519 -N '' -f {HOST_KEY}"""


def make_keys(ctl: Node) -> None:
    """A key for each user in the shared home, allowed to log in with. Kept where it is there."""
    script = """
    for user; do
        dir=/shared/home/$user/.ssh
        [ ! -e $dir/authorized_keys ] || continue
        rm -rf $dir
        install -d -o $user -g $user -m 700 $dir
        ssh-keygen -q -t ed25519 -N '' -C $user -f $dir/id_ed25519
        cp $dir/id_ed25519.pub $dir/keys.new
        chown $user:$user $dir/*
        mv $dir/keys.new $dir/authorized_keys
    done
    """
    ctl.run(["sh", "-euc", script, "sh", *USERS], doing="making ssh keys for the lab's users")
