"""A real S3 server in the lab, and nodes whose store it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.sessions import only

NODES = ("n1", "n2")
PATH = "/var/spool/slurm-reclaim"
DROP_IN = "/etc/slurm-reclaim/conf.d/zz-remote.toml"
OPTIONS = "/etc/slurm-reclaim/remote.json"
PORT = 5555


def options(port: int) -> str:
    """As agents read them; another port is that of what stands before the server."""
    at = {"endpoint_url": f"http://ctl:{port}"}
    return json.dumps({"key": "k", "secret": "s", "client_kwargs": at})


class ObjectStore:
    """moto on ctl; what it holds is in its memory."""

    def __init__(self, lab) -> None:
        self.lab = lab
        start = (
            "cd /; setsid /opt/moto/bin/moto_server -H 0.0.0.0 -p 5555 "
            "> /var/log/moto.log 2>&1 < /dev/null & echo $!"
        )
        self.pid = lab.out("ctl", "sh", "-c", start)
        lab.wait("the S3 server", self.answers, 90)
        for path in ("checkpoints", "checkpoints/lab/.slurm-reclaim-store"):
            lab.exec("ctl", "curl", "-sf", "-X", "PUT", f"http://ctl:5555/{path}", "-d", "")

    def answers(self, port: int = PORT) -> bool:
        url = f"http://ctl:{port}/"
        return self.lab.exec("ctl", "curl", "-sf", url, check=False).returncode == 0

    def signal(self, name: str) -> None:
        self.lab.exec("ctl", "kill", f"-{name}", self.pid)

    def names(self) -> str:
        return self.lab.out("ctl", "curl", "-sf", "http://ctl:5555/checkpoints?prefix=lab/")


@contextmanager
def object_store(lab, nodes=NODES, port=PORT) -> Iterator[ObjectStore]:
    """Started, and the nodes ready for it; which way they use it says `configure`."""
    one = ObjectStore(lab)
    try:
        for node in nodes:
            put(lab, node, OPTIONS, options(port))
            lab.exec(node, "chmod", "0600", OPTIONS)
            lab.exec(node, "install", "-d", "-m", "0700", PATH)
            lab.exec(node, "touch", f"{PATH}/.slurm-reclaim-store")
        yield one
    finally:
        one.signal("KILL")
        for node in ("ctl", *nodes):
            lab.exec(node, "rm", "-f", DROP_IN, OPTIONS)
        restart(lab, nodes)


def put(lab, node: str, path: str, text: str) -> None:
    lab.exec(node, "sh", "-c", f"umask 077; cat > {path}", stdin=text)


def restart(lab, nodes=NODES) -> None:
    lab.restart_daemon("ctl", "reclaimd")
    for node in nodes:
        lab.restart_daemon(node, "reclaim-agent")


def configure(lab, upload: str, nodes=NODES) -> None:
    text = (
        f'[store]\npath = "{PATH}"\nremote = "s3://checkpoints/lab"\nupload = "{upload}"\n'
        f'remote_options = "{OPTIONS}"\nremote_timeout = "20s"\n'
    )
    for node in ("ctl", *nodes):
        put(lab, node, DROP_IN, text)
        lab.exec(node, "chmod", "0644", DROP_IN)
    restart(lab, nodes)


def start_on(lab, counter, node: str):
    with only(lab, node):
        job = counter(mib=20)
    return job, job.seen()


def is_whole_on(lab, job, was, node: str) -> None:
    with only(lab, node):
        job.reclaim("restore")
        job.wait_for("RUNNING")
    now = job.counts_on()
    assert (now.pid, now.node, now.memory) == (was.pid, node, True)
    assert now.count > was.count
    assert job.output().count("started") == 1


def marks(lab, node: str, job) -> list[str]:
    words = f"for f in {PATH}/*/{job.job}.*/*/remote; do cat $f 2>/dev/null; echo; done; true"
    return lab.out(node, "sh", "-c", words).split()


# -- fixtures, for the modules that import them ----------------------------------------------------


@pytest.fixture(scope="module")
def s3(lab) -> Iterator[ObjectStore]:
    with object_store(lab) as one:
        yield one


@pytest.fixture(scope="module")
def before(lab, s3) -> ObjectStore:
    configure(lab, "before")
    return s3


@pytest.fixture(scope="module")
def after(lab, s3) -> ObjectStore:
    configure(lab, "after")
    return s3


@pytest.fixture
def awake(s3) -> Iterator[None]:
    yield
    s3.signal("CONT")
