"""Idle sessions on the real cluster: measured, judged, warned, kept or hibernated."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.notebook import Notebook
from tests.cluster.policy import NOTICES, SHADOW, policy
from tests.cluster.sessions import Counter
from tests.cluster.test_main_job import typed

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def prod(lab: Lab) -> Iterator[None]:
    with policy(lab, more=SHADOW):
        yield


@pytest.fixture
def book(lab: Lab, prod: None) -> Iterator[Notebook]:
    started = Notebook.start(lab, "--reclaim=on")
    yield started
    started.cancel()


def asked(book: Notebook, verb: str) -> dict:
    done = book.lab.ask(verb, str(book.job), "--json", user=book.user)  # type: ignore[attr-defined]
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout)


def shown(book: Notebook) -> dict:
    return asked(book, "show")


def wait_for(book: Notebook, state: str, patience: float = 90) -> dict:
    book.lab.wait(f"{state}", lambda: shown(book)["state"] == state, patience)
    return shown(book)


def events(book: Notebook, kind: str = "") -> list[dict]:
    found = asked(book, "events")["events"]
    return [event for event in found if kind in ("", event["kind"])]


def notices(lab: Lab, job: int) -> list[dict]:
    lines = lab.out("ctl", "cat", NOTICES).splitlines()
    return [found for line in lines if line and (found := json.loads(line))["job_id"] == job]


def explained(book: Notebook) -> dict:
    return asked(book, "explain")


def test_an_idle_notebook_is_warned_hibernated_and_comes_back(lab: Lab, book: Notebook) -> None:
    book.cell("x = 41")
    warned = wait_for(book, "WARNED")
    assert warned["deadline"] > time.time() - 1
    assert "reclaim keep" in book.squeue()[3]
    wait_for(book, "HIBERNATED")
    book.wait_for_state("SPECIAL_EXIT")
    assert "hibernated" in book.squeue()[3]
    (passed,) = events(book, "deadline-passed")
    assert passed["at"] >= warned["deadline"]
    (told,) = events(book, "notice-delivered")
    assert "hook" in told["details"]["told"]
    lab.wait("both notices", lambda: len(notices(lab, book.job)) == 2)
    assert [n["kind"] for n in notices(lab, book.job)] == ["warning", "hibernated"]
    assert notices(lab, book.job)[0]["deadline"] == pytest.approx(warned["deadline"], abs=0.01)
    book.restore()
    assert book.cell("print(x + 1)").text == "42\n"
    lab.wait("the owner's comment", lambda: book.squeue()[3] in ("", "(null)"))


def test_keep_takes_the_warning_back(lab: Lab, book: Notebook) -> None:
    wait_for(book, "WARNED")
    said = book.reclaim("keep", str(book.job), "--for", "10m").stdout
    assert "is kept until" in said
    assert shown(book)["state"] == "ACTIVE"
    assert explained(book)["guard"].startswith("kept: ")
    time.sleep(25)
    assert shown(book)["state"] == "ACTIVE"
    assert book.squeue()[3] in ("", "(null)")
    other = book.reclaim("keep", str(book.job), user="bob", check=False)
    assert other.returncode == 26


def test_running_a_cell_takes_the_warning_back(lab: Lab, book: Notebook) -> None:
    book.cell("x = 1")
    wait_for(book, "WARNED")
    book.cell("x += 1")
    wait_for(book, "ACTIVE", 15)
    (seen,) = events(book, "activity-seen")
    assert "jupyter" in seen["reason"]
    assert [n["kind"] for n in notices(lab, book.job)] == ["warning", "withdrawn"]
    wait_for(book, "WARNED")


def test_typing_takes_the_warning_back_and_the_warning_is_no_typing(
    lab: Lab, book: Notebook
) -> None:
    """C35: what we write into the terminal is output, not input."""
    name = typed(book, "echo one")["name"]
    wait_for(book, "WARNED")
    (told,) = events(book, "notice-delivered")
    assert "terminal" in told["details"]["told"]
    typed(book, "true", name=name)
    wait_for(book, "ACTIVE", 15)
    (seen,) = events(book, "activity-seen")
    assert "terminal" in seen["reason"]


def test_a_silent_long_cell_is_use(lab: Lab, book: Notebook) -> None:
    """C21, C28: busy is use though nothing is printed; the clock starts when it ends."""
    began = time.time()
    book.cell("import time; time.sleep(30)", seconds=60)
    ended = time.time()
    assert ended - began > 29
    assert not events(book, "idle-confirmed")
    wait_for(book, "WARNED")
    (confirmed,) = events(book, "idle-confirmed")
    assert confirmed["at"] - ended >= 9


def test_shadow_only_says_what_it_would_do(lab: Lab, prod: None) -> None:
    job = Counter.start(lab, "--job-name=watched")
    try:
        lab.wait("the shadow event", lambda: "shadow" in job.kinds(), 60)
        (event,) = [e for e in job.events() if e["kind"] == "shadow"]
        assert event["details"]["stage"] == "interactive_reclaim"
        assert event["details"]["action"] == "would_hibernate_session"
        assert event["details"]["idle_seconds"] >= 10
        assert event["details"]["vram_bytes"] == 0
        assert event["details"]["rule"] == "only watched"
        time.sleep(12)
        assert job.session()["state"] == "ACTIVE"
        assert job.kinds().count("shadow") == 1
        assert job.squeue("%k") in ("", "(null)")
        assert notices(lab, job.job) == []
    finally:
        job.cancel()


def test_what_cannot_be_requeued_is_not_warned(lab: Lab, prod: None) -> None:
    """C03."""
    job = Counter.start(lab, "--no-requeue")
    try:
        lab.wait("the refusal", lambda: "preflight-refused" in job.kinds(), 60)
        assert "may not be requeued" in job.session()["reason"]
        assert notices(lab, job.job) == []
    finally:
        job.cancel()


def test_an_agent_that_is_silent_stops_everything(lab: Lab, prod: None) -> None:
    """S4, S8: no act without fresh evidence, however idle it was."""
    job = Counter.start(lab)
    try:
        job.wait_for_session("WARNED")
        node = job.node
        lab.stop_daemon(node, "reclaim-agent", kill=True)
        try:
            time.sleep(25)
            assert "deadline-passed" not in job.kinds()
            assert job.state == "RUNNING"
        finally:
            lab.start_daemon(node, "reclaim-agent")
        job.wait_for_session("HIBERNATED")
        kinds = job.kinds()
        assert kinds.count("notice-delivered") >= 1
    finally:
        job.cancel()


def test_what_is_recorded_is_judged_the_same_by_replay(lab: Lab, prod: None) -> None:
    """By the configuration in force: what `replay` says of the recording is what was done."""
    trace = f"/tmp/recorded-{time.time_ns()}.jsonl.zst"
    recording = subprocess.Popen(
        lab._entering("ctl", "root", ["reclaim", "record", "--output", trace, "--for", "40s"]),
        stdout=subprocess.DEVNULL,
    )
    job = Counter.start(lab)
    try:
        assert recording.wait(90) == 0
        (told,) = [e for e in job.events() if e["kind"] == "idle-confirmed"]
        (passed,) = [e for e in job.events() if e["kind"] == "deadline-passed"]
        found = json.loads(lab.out("ctl", "reclaim", "replay", trace, "--json"))
        mine = {a["act"]: a["at"] for a in found["acts"] if f"/{job.job}." in a["session"]}
        assert mine["warned"] == pytest.approx(told["at"], abs=5)
        assert mine["hibernated"] == pytest.approx(passed["at"], abs=5)
        other = lab.out("ctl", "sh", "-c", f"echo '[idle]\nwindow = \"1h\"' > /tmp/other.toml; "
                        f"reclaim replay {trace} --policy /tmp/other.toml --json")  # fmt: skip
        assert json.loads(other)["acts"] == []
    finally:
        job.cancel()
        recording.kill()
        lab.exec("ctl", "rm", "-f", trace, "/tmp/other.toml")


def test_a_short_keep_gives_a_whole_window(lab: Lab, prod: None) -> None:
    job = Counter.start(lab)
    try:
        job.wait_for_session("WARNED")
        job.reclaim("keep", "--for", "1s")
        kept = time.time()
        job.wait_for_session("WARNED")
        (_, again) = [e for e in job.events() if e["kind"] == "idle-confirmed"]
        assert again["at"] - kept >= 9.5
    finally:
        job.cancel()


def test_explain_says_it_in_words(lab: Lab, book: Notebook) -> None:
    book.cell("x = 1")
    lab.wait("a judgement", lambda: explained(book)["votes"], 30)
    found = explained(book)
    votes = {vote["signal"]: vote for vote in found["votes"]}
    assert set(votes) >= {"cpu", "io", "network", "terminal", "jupyter"}
    assert found["window"] == 10
    assert found["mode"] == "prod"
    text = book.reclaim("explain", str(book.job)).stdout
    assert "SIGNAL" in text
    assert "jupyter" in text
    assert "next" in text
