"""Forgeries: each is refused with a named reason, and the session can be restored afterwards."""

from __future__ import annotations

import json
import re

import pytest

from tests.cluster.notebook import put
from tests.cluster.sessions import Counter, only, processes, settle

pytestmark = pytest.mark.cluster


def forge(lab, node: str, *words: str, user: str = "root") -> dict:
    """What reclaimd answered to a forged request made on `node` (inside/forger.py)."""
    put(lab, "forger.py")
    program = ["/opt/slurm-reclaim/bin/python", "/shared/inside/forger.py", *words]
    return json.loads(lab.exec(node, *program, user=user).stdout)


# -- who speaks for a node ------------------------------------------------------------------------


def test_root_of_another_node_can_not_give_a_session_away(lab, counter):
    """S1: the other node's root says that it has committed a session that runs here."""
    job = counter()
    other = next(n for n in ("n1", "n2") if n != job.node)
    before, session = job.seen(), job.session()
    as_its_node = forge(lab, other, "committed", job.node, str(job.job), session["session"])
    assert as_its_node["error"] == "WrongNode"
    assert f"node {job.node}" in as_its_node["message"]
    # In its own name it may speak; what it says of that session is no news of it.
    assert "error" not in forge(lab, other, "committed", other, str(job.job), session["session"])
    settle(5)
    assert (job.state, job.session()["state"]) == ("RUNNING", "ACTIVE")
    assert job.counts_on().pid == before.pid
    events = json.loads(lab.out("ctl", "reclaim", "events", "--json"))["events"]
    assert any(e["kind"] == "wrong-node" and job.node in e["reason"] for e in events)
    job.reclaim("hibernate")
    job.reclaim("restore")
    assert job.counts_on().pid == before.pid


def test_orders_and_starts_of_another_node_are_not_told(lab):
    for what in ("orders", "start"):
        assert forge(lab, "n2", what, "n1", "1", "x")["error"] == "WrongNode", what


# -- what lies in the store -----------------------------------------------------------------------

STORE = "/shared/reclaim"
PYTHON = "/opt/slurm-reclaim/bin/python"


class Victim:
    """A hibernated session of alice, one of bob beside it, and a copy of both of their folders."""

    def __init__(self, lab) -> None:
        self.lab = lab
        self.job = Counter.start(lab, mib=4)
        self.bobs = Counter.start(lab, user="bob")
        self.before = self.job.seen()
        for each in (self.job, self.bobs):
            each.reclaim("hibernate")
        self.folder, self.other = self.of(self.job), self.of(self.bobs)
        put(lab, "tamper.py")
        lab.exec("ctl", "rm", "-rf", "/shared/aside")
        lab.exec("ctl", "cp", "-a", self.folder, "/shared/aside")

    def of(self, counter: Counter) -> str:
        return self.lab.out("ctl", "sh", "-c", f"ls -d {STORE}/*/{counter.job}.*")

    def tamper(self, *how: str) -> None:
        words = (PYTHON, "/shared/inside/tamper.py", self.folder, *how, self.other)
        # Where the keys are, as whoever reseals has to be.
        self.lab.exec("n1", *words)

    def put_back(self) -> None:
        script = f"rm -rf {self.folder} {STORE}/elsewhere; cp -a /shared/aside {self.folder}"
        self.lab.exec("ctl", "sh", "-c", script)

    def refusal(self) -> str:
        """Why the restore came to nothing. Nobody may live anywhere after it."""
        done = self.job.reclaim("restore", check=False)
        assert done.returncode != 0, "it was restored"
        reason = self.job.wait_for_session("HIBERNATED")["reason"]
        for node in ("n1", "n2"):
            assert processes(self.lab, node) == []
        return reason


@pytest.fixture(scope="module")
def victim(lab):
    found = Victim(lab)
    yield found
    found.job.cancel()
    found.bobs.cancel()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("flip", "is not what was written"),
        ("cut", "were written"),
        ("swap", "is not what was written"),
        ("graft", "w(as|ere) written"),
        ("link", "symbolic link"),
        ("fifo", "no plain file"),
        ("edit", "was changed after it was sealed"),
        ("unseal", "is not sealed"),
        ("own_key", "which this node does not have"),
        ("others", "was put in the place of"),
        ("manifest_link", "symbolic link"),
        ("manifest_hard_link", "2 names"),
        ("manifest_fifo", "no plain file"),
        ("writable", "can be written by others"),
    ],
)
def test_a_forged_checkpoint_is_refused_by_name(victim, how, words):
    victim.tamper(how)
    try:
        assert re.search(words, victim.refusal())
    finally:
        victim.put_back()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("namespace", "userns-1.img: the image brings a namespace"),
        ("uid", "uid 0,0,0,0 is not the owner's"),
        ("group", "are not the owner's"),
        ("capability", "capabilities"),
        ("unfiltered", "seccomp"),
        ("stranger", "thread 999 is in the image and was not in the session"),
    ],
)
def test_credentials_edited_by_who_has_the_keys_are_refused_by_name(victim, how, words):
    victim.tamper(how)
    try:
        assert words in victim.refusal()
    finally:
        victim.put_back()


def test_hostile_names_in_the_store_do_no_harm(victim):
    script = rf"""
cd {STORE}/*/ && mkdir -p "$(printf 'a\nb')" "$(printf '%s.2001.²' {victim.job.job})" \
    "$(printf '\xff\xfe')" '$(id)' -- '-rf' "{victim.job.job}.2001.0x1" 7.2001.1.1
mkfifo {victim.job.job}.2001.99 "{victim.folder}/7" 2>/dev/null
mkdir -p "{victim.folder}/²" "{victim.folder}/-1" "{victim.folder}/$(printf '1\n')"
ln -sfn / "{victim.folder}/8"; true
"""
    victim.lab.exec("ctl", "bash", "-c", script)
    try:
        victim.job.reclaim("restore")
        assert victim.job.counts_on().pid == victim.before.pid
        for node in ("n1", "n2"):
            assert "Traceback" not in victim.lab.logs(node, "reclaim-agent")
        victim.job.reclaim("hibernate")
        victim.lab.exec("ctl", "rm", "-rf", "/shared/aside")
        victim.lab.exec("ctl", "cp", "-a", victim.folder, "/shared/aside")
    finally:
        names = (
            f"cd {STORE}/*/ && rm -rf -- *.²  $(printf '\\xff\\xfe') '$(id)' -rf *.0x1 7.2001.1.1"
        )
        more = f"rm -rf {victim.job.job}.2001.99 {victim.folder}/7 {victim.folder}/[8²-]*"
        victim.lab.exec("ctl", "bash", "-c", f"{names}; {more}; rm -rf $'a\\nb'", check=False)


# -- who asks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("as-root", "NotPermitted"),
        ("others-job", "NotPermitted"),
        ("bent", "CredentialRefused"),
        ("made-up", "CredentialRefused"),
        ("replayed", "CredentialRefused"),
        ("other-controller", "CredentialRefused"),
        ("other-path", "CredentialRefused"),
        ("other-body", "CredentialRefused"),
        ("old", "CredentialRefused"),
    ],
)
def test_a_forged_request_is_refused_by_name(lab, victim, how, error):
    """bob forges what would restore alice's session. Whatever he claims, MUNGE says who he is."""
    answer = forge(lab, "n2", f"request:{how}", "n2", str(victim.job.job), "x", user="bob")
    assert answer["error"] == error
    assert answer["message"]


def test_another_users_restore(lab, victim):
    for user in ("bob", "olga"):
        done = victim.job.reclaim("show", user=user, check=False)
        assert (done.returncode == 0) == (user == "olga")
    for verb in ("restore", "hibernate", "keep"):
        done = victim.job.reclaim(verb, user="bob", check=False)
        assert done.returncode == 26
        assert "alice" not in done.stderr


# -- what the owner leaves about ------------------------------------------------------------------

TRAPS = r"""
import os, stat
home = os.environ["HOME"]
for name in ("criu", "tar", "cat", "cmp", "find", "sh", "stat", "reclaim-exec"):
    path = f"{home}/bin/{name}"
    os.makedirs(f"{home}/bin", exist_ok=True)
    with open(path, "w") as file:
        file.write(f"#!/bin/bash\nid > {home}/sprung-{name}\n")
    os.chmod(path, 0o755)
os.makedirs(f"{home}/.criu", exist_ok=True)
with open(f"{home}/.criu/default.conf", "w") as file:
    file.write(f"action-script={home}/bin/criu\nleave-running\n")
"""


def test_what_the_owner_leaves_about_is_not_used(lab):
    """CRIU's settings of the owner, programs in PATH, a library to be loaded first, umask 0."""
    lab.exec("ctl", "python3", "-", user="alice", stdin=TRAPS)
    source = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void in(void)
{
	char name[64], path[256];
	int from = open("/proc/self/comm", O_RDONLY);
	int size = read(from, name, sizeof(name)), to;

	snprintf(path, sizeof(path), "%s/sprung-preload", getenv("HOME"));
	to = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (write(to, name, size) < 0)
		abort();
	close(to);
	close(from);
}
"""
    build = "cd && unset LD_PRELOAD && cat > trap.c && gcc -shared -fPIC -o trap.so trap.c"
    lab.exec("n1", "sh", "-c", build, user="alice", stdin=source)
    put(lab, "counter.py")
    script = (
        "#!/bin/bash\numask 000\nexport PATH=$HOME/bin:$PATH LD_PRELOAD=$HOME/trap.so\n"
        "export CRIU_CONFIG_FILE=$HOME/.criu/default.conf CRIU_LIBS_DIR=$HOME\n"
        "exec /usr/bin/python3 /shared/inside/counter.py $HOME/count-$SLURM_JOB_ID 0\n"
    )
    job = Counter(
        lab,
        lab.sbatch(script, "--reclaim=on", "-D", "/shared/home/alice", "-o", "%j.out"),
        "alice",
    )
    try:
        lab.wait("the first count", lambda: job.seen(check=False))
        job.wait_for_session("ACTIVE")
        before = job.seen()
        job.reclaim("hibernate")
        open_to_others = f"find {STORE}/*/{job.job}.* -perm /077"
        assert lab.out("ctl", "sh", "-c", open_to_others) == ""
        job.reclaim("restore")
        assert job.counts_on().pid == before.pid
        sprung = lab.out("ctl", "sh", "-c", "cd /shared/home/alice; cat sprung-* || true")
        assert "python3" in sprung, "the trap works"
        for program in ("criu", "tar", "reclaim", "uid="):
            assert program not in sprung
        node = job.node
        umask = lab.out(
            node, "sh", "-c", "grep -h Umask $(ls -d /proc/[0-9]*/status) | sort | uniq -c"
        )
        assert "0000" in umask
    finally:
        job.cancel()
        words = "cd /shared/home/alice && rm -rf bin .criu trap.c trap.so sprung-*"
        lab.exec("ctl", "sh", "-c", words)


def test_a_node_without_keys_takes_nothing_and_says_so(lab):
    """S8 and S10: nothing is hibernated there, and jobs start as ever."""
    job = Counter.start(lab)
    node, before = job.node, job.seen()
    keys = "/etc/slurm-reclaim/store.keys"
    lab.exec(node, "mv", keys, "/root/aside.keys")
    try:
        done = job.reclaim("hibernate", check=False)
        assert done.returncode != 0
        assert "store.keys" in done.stderr
        assert job.counts_on().pid == before.pid
        checked = lab.exec(node, "reclaim", "check", check=False)
        assert checked.returncode == 1
        assert f"there is no {keys}" in checked.stdout
        lab.wait("the controller to know", lambda: "same keys" in _failed(lab, node))
        with only(lab, node):
            fresh = lab.sbatch(
                "#!/bin/bash\nsleep 1\n", "--reclaim=on", "-D", "/tmp", "-o", "/dev/null"
            )
            lab.wait("the fresh job", lambda: lab.job_state(fresh) == "COMPLETED", 60)
        lab.exec(node, "sh", "-c", f"cp /root/aside.keys {keys}; chmod 0644 {keys}")
        done = job.reclaim("hibernate", check=False)
        assert "only root may read" in done.stderr
        lab.exec(node, "chmod", "0600", keys)
        job.reclaim("hibernate")
        job.reclaim("restore")
        assert job.counts_on().pid == before.pid
    finally:
        lab.exec(node, "sh", "-c", f"mv /root/aside.keys {keys}; chmod 0600 {keys}")
        job.cancel()


def _failed(lab, node: str) -> str:
    said = lab.exec(node, "reclaim", "check", "--json", check=False).stdout
    return " ".join(c["name"] for c in json.loads(said)["checks"] if c["verdict"] == "failed")


def test_after_all_of_it_the_session_comes_back(victim):
    victim.tamper("nothing")
    victim.job.reclaim("restore")
    seen = victim.job.counts_on()
    assert (seen.pid, seen.memory) == (victim.before.pid, True)
    assert victim.job.output().count("started") == 1
