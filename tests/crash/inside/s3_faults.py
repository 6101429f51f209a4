"""What stands before the object store and answers for it: the n-th request of all nodes is refused,
cut in half, done and not answered, or held. control.py and bucket.py lie beside this file.

s3_faults.py PORT TARGET CONTROL_FILE
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from bucket import Fault, Proxy
from control import Action, Control, Kind

HALVED = 1
CODES = {500: "InternalError", 503: "SlowDown"}


class Counted(Proxy):
    control: Control
    one_by_one = threading.Lock()

    def _fault(self, method: str, path: str) -> Fault | None:
        with self.one_by_one:
            action = self.control.take(Kind.REMOTE, f"{method} {path}", os.getpid())
            error = self.control.error
        if action is Action.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        half = error == HALVED
        if action is Action.FAIL:
            return Fault(anything, short_up=True) if half else answering(error)
        if action is Action.LOSE:
            return Fault(anything, short_down=half, lost=not half)
        return None


def anything(method: str, path: str) -> bool:
    return True


def answering(status: int) -> Fault:
    return Fault(anything, status=status, code=CODES[status])


Counted.control = Control(Path(sys.argv[3]))
Counted(sys.argv[2], host="0.0.0.0", port=int(sys.argv[1]))
threading.Event().wait()
