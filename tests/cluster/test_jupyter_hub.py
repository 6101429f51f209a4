"""Single-user servers of a real JupyterHub, started as managed jobs by our spawner (C08, C38)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.notebook import INSIDE
from tests.cluster.sessions import Counter, only
from tests.cluster.test_jupyter import JUPYTER, Readings, wait_for_session

PLACE = "/var/tmp/hub"


class Hub:
    def __init__(self, lab) -> None:
        self.lab = lab
        config = (INSIDE / "hub_config.py").read_text()
        make = f"rm -rf {PLACE}; mkdir -p {PLACE}; cat > {PLACE}/config.py"
        lab.exec("ctl", "sh", "-c", make, stdin=config)
        self.start()

    def start(self, start_timeout: int = 120) -> None:
        start = (
            f"cd {PLACE}; PATH={JUPYTER}:$PATH START_TIMEOUT={start_timeout} "
            f"setsid {JUPYTER}/jupyterhub -f {PLACE}/config.py > log 2>&1 < /dev/null & echo $!"
        )
        self.pid = self.lab.out("ctl", "sh", "-c", start)
        self.lab.wait("the hub", lambda: self.ask("GET", "/", check=False), 60)

    def ask(
        self, method: str, path: str, *, base: str = "http://127.0.0.1:8081/hub/api",
        token: str = "test-token-of-the-hub", check: bool = True,
    ):  # fmt: skip
        words = ["curl", "-sf", "-X", method, "-H", f"Authorization: token {token}", base + path]
        done = self.lab.exec("ctl", *words, check=check)
        return json.loads(done.stdout or "null")

    def alice(self) -> dict:
        return self.ask("GET", "/users/alice?include_stopped_servers=1")

    def server(self, name: str = "") -> dict:
        """As the hub has it, whether or not it runs."""
        return self.alice()["servers"].get(name, {"ready": False, "state": {}})

    def is_at_rest(self) -> bool:
        """Whether alice's own server is stopped, and nothing is under way."""
        server = self.server()
        return not server["ready"] and not server.get("pending")

    def address(self, name: str = "") -> str:
        """Where a server answers, as the hub last told its proxy."""
        place = f"/user/alice/{name}/".replace("//", "/")
        said = self.lab.out("ctl", "grep", "-o", f"{place} => http.*", f"{PLACE}/log")
        return said.splitlines()[-1].split()[2]

    def stop(self) -> None:
        """Its servers run on."""
        self.lab.exec("ctl", "kill", self.pid, check=False)

        def gone() -> bool:
            return self.lab.exec("ctl", "kill", "-0", self.pid, check=False).returncode != 0

        self.lab.wait("the hub to end", gone, 60)

    def close(self) -> None:
        self.stop()
        self.lab.exec("ctl", "scancel", "--name", "spawner-jupyterhub", "-u", "alice", check=False)


@pytest.fixture
def hub(lab) -> Iterator[Hub]:
    one = Hub(lab)
    try:
        yield one
    finally:
        one.close()


def test_the_hub_sees_no_activity_in_our_asking(lab, hub):
    hub.ask("POST", "/users/alice")
    hub.ask("POST", "/users/alice/server")
    lab.wait("the server", lambda: hub.alice()["servers"][""]["ready"], 120)
    server = hub.alice()["servers"][""]
    job = Counter(lab, int(server["state"]["job_id"]), "alice")
    wait_for_session(lab, job.job)
    readings = Readings(lab, job)
    readings.wait("an answer", lambda r: r.get("what") == "no kernel", 60)
    time.sleep(4)
    before = hub.alice()
    said = readings.poll(12, 1)
    assert {(r["value"], r["what"]) for r in said} == {(0.0, "no kernel")}
    after = hub.alice()
    assert after["last_activity"] == before["last_activity"]
    assert after["servers"][""]["last_activity"] == before["servers"][""]["last_activity"]

    token = hub.ask("POST", "/users/alice/tokens")["token"]
    hub.ask("POST", "/user/alice/api/kernels", base=hub.address(), token=token)
    seen = readings.wait("the kernel", lambda r: r["what"].startswith("1 kernel idle"))
    assert time.time() - seen["last"] < 30
    lab.wait(
        "the hub to hear of it",
        lambda: hub.alice()["servers"][""]["last_activity"] > after["servers"][""]["last_activity"],
        30,
    )


def test_a_hibernated_server_is_not_a_stopped_one(lab, hub):
    """C08, with a named server: over a restart of the hub and a start that it gives up, there is
    one job, and Start brings it back."""
    hub.ask("POST", "/users/alice")
    hub.ask("POST", "/users/alice/servers/work")
    lab.wait("the server", lambda: hub.server("work")["ready"], 120)
    job = Counter(lab, int(hub.server("work")["state"]["job_id"]), "alice")
    job.wait_for_session("ACTIVE")

    def kernels(method: str = "GET") -> str:
        # A new one each time: the server has to ask the hub, by the token that it began with.
        token = hub.ask("POST", "/users/alice/tokens")["token"]
        made = hub.ask(
            method, "/user/alice/work/api/kernels", base=hub.address("work"), token=token
        )
        return made["id"] if method == "POST" else [each["id"] for each in made]

    kernel = kernels("POST")
    job.reclaim("hibernate")
    lab.wait("the hub to see it", lambda: hub.server("work")["state"]["reclaim"]["asleep"], 30)
    lab.wait("its server to be stopped for it", lambda: not hub.server("work")["ready"])
    hub.stop()
    hub.start(start_timeout=2)
    assert hub.server("work")["state"]["job_id"] == str(job.job)
    with only(lab):  # no node takes it
        hub.ask("POST", "/users/alice/servers/work", check=False)
        given_up = f"grep -q 'failed to start in 2 seconds' {PLACE}/log"
        lab.wait("the hub to give up", lambda: not lab.exec(
            "ctl", "sh", "-c", given_up, check=False).returncode)  # fmt: skip
        assert (job.state, job.session()["state"]) == ("PENDING", "QUEUED")
    job.wait_for_session("ACTIVE")
    hub.stop()
    hub.start()
    hub.ask("POST", "/users/alice/servers/work")
    lab.wait("the server again", lambda: hub.server("work")["ready"], 60)
    assert hub.server("work")["state"]["job_id"] == str(job.job)
    mine = lab.out("ctl", "squeue", "-h", "-t", "all", "-n", "spawner-jupyterhub", "-o", "%A %T")
    assert [line for line in mine.splitlines() if "CANCEL" not in line] == [f"{job.job} RUNNING"]
    assert kernels() == [kernel]


MISTAKE = "/etc/slurm-reclaim/conf.d/zz-mistake.toml"


@pytest.fixture
def started(lab, hub) -> Counter:
    """The job of alice's own server."""
    hub.ask("POST", "/users/alice")
    hub.ask("POST", "/users/alice/server")
    lab.wait("the server", lambda: hub.server()["ready"], 120)
    job = Counter(lab, int(hub.server()["state"]["job_id"]), "alice")
    job.wait_for_session("ACTIVE")
    return job


def test_a_hub_that_can_not_ask_forgets_nothing(lab, hub, started):
    """A mistake in the configuration of its host says nothing of any session."""
    lab.exec("ctl", "sh", "-c", f"echo nonsense = 1 > {MISTAKE}")
    try:
        lab.exec("n1", "reclaim", "hibernate", started.ref, user="alice")
        time.sleep(6)
        assert hub.server()["state"]["job_id"] == started.ref
    finally:
        lab.exec("ctl", "rm", "-f", MISTAKE)
    lab.wait("the hub to see it", lambda: hub.server()["state"]["reclaim"]["asleep"], 30)
    lab.wait("its server to be stopped for it", hub.is_at_rest)
    hub.ask("POST", "/users/alice/server")
    lab.wait("the server again", lambda: hub.server()["ready"], 60)
    assert hub.server()["state"]["job_id"] == started.ref


def test_a_server_that_is_stopped_in_the_middle_of_its_hibernation(lab, hub, started):
    """As a hub does that is started anew and finds it frozen: nothing is lost."""
    agent = "pgrep -o -f reclaim-agent"
    node = started.node
    lab.exec(node, "sh", "-c", f"kill -STOP $({agent})")
    try:
        started.reclaim("hibernate", "--no-wait")
        hub.ask("DELETE", "/users/alice/server")
        lab.wait("the hub to have stopped it", hub.is_at_rest, 60)
    finally:
        lab.exec(node, "sh", "-c", f"kill -CONT $({agent})")
    started.wait_for_session("HIBERNATED")
    assert hub.server()["state"]["job_id"] == started.ref
    hub.ask("POST", "/users/alice/server")
    lab.wait("the server again", lambda: hub.server()["ready"], 60)
    assert started.state == "RUNNING"
