"""An object store as the store of the sessions: a real S3 server, behind what makes it fail
(inside/s3_faults.py)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.cluster import object_store
from tests.cluster.conftest import Lab

if TYPE_CHECKING:
    from tests.crash.rig import Rig

PORT = 5556
# Nothing is on its way, and the controller knows it.
IN_STORE = {"copy", "manifest"}


@contextmanager
def in_use(rig: Rig, place: str, upload: str) -> Iterator[None]:
    """`place`: where the harness's files are on the nodes; `upload`: before or after the commit."""
    lab = Lab(rig.name)
    rig.control("s3", "ctl").disarm()
    with ExitStack() as stack:
        rig.all_away(True)
        stack.callback(rig.all_away, False)
        store = stack.enter_context(object_store.object_store(lab, tuple(rig.nodes), PORT))
        start = (
            f"cd {place}; setsid python3 s3_faults.py {PORT} http://ctl:5555 {place}/s3-ctl "
            ">/var/log/s3-faults.log 2>&1 </dev/null & echo $!"
        )
        pid = rig.sh("ctl", start)
        stack.callback(rig.sh, "ctl", f"kill -9 {pid}", check=False)
        lab.wait("what stands before the S3 server", lambda: store.answers(PORT))
        object_store.configure(lab, upload, tuple(rig.nodes))
        rig.all_away(False)
        rig.remote = upload
        try:
            yield
        finally:
            rig.remote = ""
            rig.all_away(True)


def see_uploaded(rig: Rig, node: str, job: int, patience: float = 90.0) -> bool:
    """Wait for the object store to have all of a session."""
    deadline = time.monotonic() + patience
    while not marks(rig, node, job) <= IN_STORE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def marks(rig: Rig, node: str, job: int) -> set[str]:
    words = f"for f in {object_store.PATH}/*/{job}.*/*/remote; do cat $f 2>/dev/null; echo; done"
    return set(rig.sh(node, words, check=False).split())


def forget_copies(rig: Rig, node: str, job: int) -> None:
    """As if it were another node: the object store's is all there is."""
    rig.sh(node, f"rm -rf {object_store.PATH}/*/{job}.*")
