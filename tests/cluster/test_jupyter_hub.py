"""A single-user server under a real JupyterHub, started by batchspawner as a managed job (C38)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.notebook import INSIDE
from tests.cluster.sessions import Counter
from tests.cluster.test_jupyter import JUPYTER, Readings, wait_for_session

PLACE = "/var/tmp/hub"


class Hub:
    def __init__(self, lab) -> None:
        self.lab = lab
        config = (INSIDE / "hub_config.py").read_text()
        make = f"rm -rf {PLACE}; mkdir -p {PLACE}; cat > {PLACE}/config.py"
        lab.exec("ctl", "sh", "-c", make, stdin=config)
        start = (
            f"cd {PLACE}; PATH={JUPYTER}:$PATH setsid {JUPYTER}/jupyterhub -f {PLACE}/config.py "
            "> log 2>&1 < /dev/null & echo $!"
        )
        self.pid = lab.out("ctl", "sh", "-c", start)
        lab.wait("the hub", lambda: self.ask("GET", "/", check=False), 60)

    def ask(
        self, method: str, path: str, *, base: str = "http://127.0.0.1:8081/hub/api",
        token: str = "test-token-of-the-hub", check: bool = True,
    ):  # fmt: skip
        words = ["curl", "-sf", "-X", method, "-H", f"Authorization: token {token}", base + path]
        done = self.lab.exec("ctl", *words, check=check)
        return json.loads(done.stdout or "null")

    def alice(self) -> dict:
        return self.ask("GET", "/users/alice")

    def close(self) -> None:
        """Its servers end with it."""
        self.lab.exec("ctl", "kill", self.pid, check=False)

        def gone() -> bool:
            return self.lab.exec("ctl", "kill", "-0", self.pid, check=False).returncode != 0

        self.lab.wait("the hub to end", gone, 60)


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
    address = lab.out("ctl", "grep", "-o", "/user/alice/ => http.*", f"{PLACE}/log").split()[2]
    hub.ask("POST", "/user/alice/api/kernels", base=address, token=token)
    seen = readings.wait("the kernel", lambda r: r["what"].startswith("1 kernel idle"))
    assert time.time() - seen["last"] < 30
    lab.wait(
        "the hub to hear of it",
        lambda: hub.alice()["servers"][""]["last_activity"] > after["servers"][""]["last_activity"],
        30,
    )
