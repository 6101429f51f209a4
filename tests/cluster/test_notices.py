"""Notices on the real cluster: on a session's terminals, by a hook, and what follows from them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.notebook import TOKEN, Notebook, put
from tests.cluster.sessions import Counter

pytestmark = pytest.mark.cluster

DROP_IN = "/etc/slurm-reclaim/conf.d/zz-notices.toml"
HOOKS = "/etc/slurm-reclaim/hooks.d"
KEPT = "/var/lib/slurm-reclaim/controller/notices"
PYTHON = "/opt/slurm-reclaim/bin/python"
# Somebody's terminal without anybody at it; `script` writes down what it shows.
AT_A_TERMINAL = 'sleep 100000 | script -qfc "cat" $HOME/typescript-$SLURM_JOB_ID\n'


@pytest.fixture
def policy(lab):
    """Judge by `text`, without waiting for long; a hook keeps every notice."""

    def judge_by(channels: str, enough: str, more: str = "") -> None:
        text = (
            'mode = "prod"\n[idle]\nwindow = "15s"\ngrace = "20s"\nmin_age = "0s"\n'
            f"[notice]\nchannels = {channels}\nenough = {enough}\n{more}"
        )
        hook = f"#!/bin/sh\nmkdir -p {KEPT}\ncat > $(mktemp {KEPT}/XXXXXX)\n"
        lab.exec("ctl", "sh", "-c", f"cat > {DROP_IN}", stdin=text)
        lab.exec("ctl", "sh", "-c", f"mkdir -p {HOOKS}; rm -rf {KEPT}")
        lab.exec("ctl", "sh", "-c", f"cat > {HOOKS}/keep; chmod 755 {HOOKS}/keep", stdin=hook)
        lab.restart_daemon("ctl", "reclaimd")

    yield judge_by
    lab.exec("ctl", "rm", "-rf", DROP_IN, HOOKS, KEPT)
    lab.restart_daemon("ctl", "reclaimd")


@pytest.fixture
def job(lab):
    """Submit a managed script of alice's."""
    started = []

    def submit(script: str) -> Counter:
        number = lab.sbatch("#!/bin/bash\n" + script, "--reclaim=on", "-D", "/shared/home/alice")
        started.append(Counter(lab, number, "alice"))
        started[-1].wait_for_session("ACTIVE")
        return started[-1]

    yield submit
    for one in started:
        one.cancel()


def notices(lab, job: Counter) -> list[dict]:
    """What the hook got of this job, oldest first."""
    script = f"for name in {KEPT}/*; do cat $name; echo; done"
    said = lab.exec("ctl", "sh", "-c", script, check=False).stdout
    found = [json.loads(line) for line in said.splitlines() if line]
    mine = [each for each in found if each["job_id"] == job.job]
    return sorted(mine, key=lambda each: each["sent"])


def init_of(lab, node: str, job: int) -> int:
    """PID of the session's reclaim-init, as its agent has it."""
    code = (
        "import glob, json\n"
        "for name in glob.glob('/var/lib/slurm-reclaim/sessions/*'):\n"
        "    s = json.load(open(name))\n"
        f"    if s['job_id'] == {job}: print(s['init'])\n"
    )
    return int(lab.out(node, PYTHON, "-c", code))


def last_input(lab, node: str, init: int) -> dict[str, float]:
    code = (
        "import json; from slurm_reclaim.adapters.proc import terminals\n"
        f"print(json.dumps(terminals.of_session({init})))"
    )
    return json.loads(lab.out(node, PYTHON, "-c", code))


def test_warned_on_its_terminal_and_hibernated(lab, policy, job):
    policy('["terminal", "comment", "hook"]', '["terminal"]')
    session = job(AT_A_TERMINAL)
    session.wait_for_session("WARNED")
    node = session.node
    before = last_input(lab, node, init_of(lab, node, session.job))
    assert list(before) == ["pts/0"]
    typed = time.time()
    shown = lab.out("ctl", "cat", f"/shared/home/alice/typescript-{session.job}")
    assert shown.count("*** slurm-reclaim: Session") == 1, "one warning in a span of idleness"
    assert f"reclaim keep {session.job}" in shown
    assert before["pts/0"] < typed - 10, "the warning is no input"
    # That it goes on to HIBERNATED says so, too: input would have made it ACTIVE.
    session.wait_for_session("HIBERNATED")
    assert [each["kind"] for each in notices(lab, session)] == ["warning", "hibernated"]
    warning, done = notices(lab, session)
    assert warning["user"] == "alice"
    assert warning["deadline"] > warning["sent"]
    assert f"reclaim restore {session.job}" in done["text"]
    (event,) = [e for e in session.events() if e["kind"] == "notice-delivered"]
    assert "terminal" in event["reason"]
    session.reclaim("restore")
    session.wait_for_session("ACTIVE")


def wait_for_nobody_told(lab, session) -> None:
    lab.wait(
        "the warning that reached nobody",
        lambda: [e for e in session.events() if "nobody could be told" in e["reason"]],
        90,
    )


def test_without_a_terminal_nobody_was_told_and_nothing_is_done(lab, policy, job):
    policy('["terminal", "comment"]', '["terminal"]')
    session = job("sleep 100000\n")
    wait_for_nobody_told(lab, session)
    assert any("terminal: no terminal" in e["reason"] for e in session.events())
    assert session.session()["state"] == "ACTIVE"
    assert "deadline-passed" not in session.kinds()


def test_a_hook_alone_is_enough(lab, policy, job):
    policy('["hook"]', '["hook"]')
    session = job("sleep 100000\n")
    session.wait_for_session("HIBERNATED", 90)
    assert [each["kind"] for each in notices(lab, session)] == ["warning", "hibernated"]


POST = "/var/lib/slurm-reclaim/post.jsonl"
MAIL, WEB = 2525, 8125
REACHED = f"""smtp_port = {MAIL}
mail_to = "{{user}}@lab.example"
webhook = "http://127.0.0.1:{WEB}/told"
"""


@contextmanager
def post(lab, *mode: str) -> Iterator[Callable[[], list[dict]]]:
    """A mail server and a web server on the controller's host; gives what they have taken."""
    put(lab, "post.py")
    words = f"{MAIL} {WEB} {POST} {' '.join(mode)}"
    serve = f"rm -f {POST}; python3 /shared/inside/post.py {words} >/dev/null 2>&1 & echo $!"
    server = lab.out("ctl", "sh", "-c", serve)

    def taken() -> list[dict]:
        said = lab.exec("ctl", "cat", POST, check=False).stdout
        return [json.loads(line) for line in said.splitlines()]

    try:
        yield taken
    finally:
        lab.exec("ctl", "kill", server, check=False)
        lab.exec("ctl", "rm", "-f", POST)


def test_warned_by_mail_and_webhook(lab, policy, job):
    with post(lab) as taken:
        policy('["mail", "webhook"]', '["mail"]', REACHED)
        session = job("sleep 100000\n")
        session.wait_for_session("HIBERNATED", 90)
        lab.wait("all of it", lambda: len(taken()) == 4)
        mails = [each for each in taken() if each["by"] == "mail"]
        assert [each["to"] for each in mails] == [["alice@lab.example"]] * 2
        assert f"reclaim keep {session.job}" in mails[0]["body"]
        assert f"reclaim restore {session.job}" in mails[1]["body"]
        hooked = [each for each in taken() if each["by"] == "webhook"]
        assert [each["kind"] for each in hooked] == ["warning", "hibernated"]
        assert hooked[0]["deadline"] > hooked[0]["sent"]
        lab.wait("the record of the second", lambda: "notice" in session.kinds())
        (recorded,) = [e for e in session.events() if e["kind"] == "notice"]
        assert recorded["details"]["notice"] == "hibernated"
        assert sorted(recorded["details"]["told"]) == ["mail", "webhook"]
        (warned,) = [e for e in session.events() if e["kind"] == "notice-delivered"]
        assert sorted(warned["details"]["told"]) == ["mail", "webhook"]


def test_a_mail_that_is_refused_is_no_warning(lab, policy, job):
    """Though the webhook, which is not enough, was told."""
    with post(lab, "refuse") as taken:
        policy('["mail", "webhook"]', '["mail"]', REACHED)
        session = job("sleep 100000\n")
        wait_for_nobody_told(lab, session)
        assert any("550 no such user" in e["reason"] for e in session.events())
        assert [each["kind"] for each in taken()][:1] == ["warning"]
        time.sleep(25)
        assert session.session()["state"] == "ACTIVE"
        assert "deadline-passed" not in session.kinds()


def test_a_jupyter_terminal_shows_it(lab):
    """The agent's own function, on a real session, while its user looks."""
    book = Notebook.start(lab, "--reclaim=on")
    try:
        put(lab, "terminal.py")
        words = ["/opt/jupyter/bin/python", "/shared/inside/terminal.py", book.node,
                 str(book.port), TOKEN]  # fmt: skip
        made = lab.exec("ctl", *words, user="alice", stdin="echo hello\n")
        name = json.loads(made.stdout)["name"]
        init = init_of(lab, book.node, book.job)
        seen = []

        def look() -> None:
            again = lab.exec("ctl", *words, "--name", name, "--seconds", "12", user="alice")
            seen.append(json.loads(again.stdout)["text"])

        user = threading.Thread(target=look)
        user.start()
        # terminal.py throws away what comes in the first seconds, and types nothing.
        time.sleep(16)
        before = last_input(lab, book.node, init)
        code = (
            "from slurm_reclaim.adapters.proc import wall\n"
            f"print(wall.write({init}, '\\nsoon\\x1b]0;x\\x07, \\u2713\\n\\n'))"
        )
        assert lab.out(book.node, PYTHON, "-c", code) == "1"
        user.join()
        assert "soon?]0;x?, ✓" in seen[0]
        assert last_input(lab, book.node, init) == before
    finally:
        book.cancel()
