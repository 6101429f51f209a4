"""The rules of other products, as far as their documentation tells them, on the same samples.

What they do is kill or stop; here it counts like a hibernation: the session is gone until its owner
is back. None of them looks at more than one kind of signal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.sample import Sample
from slurm_reclaim.model.trace import Entry, Label
from slurm_reclaim.policy.decision import Decision, Standing
from slurm_reclaim.policy.idleness import begin
from slurm_reclaim.policy.replay import Replay, Seat

MINUTE, HOUR = 60.0, 3600.0
IDLE = Decision(Standing.IDLE, 0.0, 0.0, "by its rule")


class Rule(Protocol):
    """Of one session, from its start or restart on."""

    def acts(self, sample: Sample) -> bool: ...


class JobDefenseShield:
    """Cancelled after 120 minutes if utilization was exactly 0 in every sample since the job began
    (its shipped example; checked every 15 minutes)."""

    def __init__(self) -> None:
        self.began = self.checked = 0.0
        self.used = False

    def acts(self, sample: Sample) -> bool:
        self.began = self.began or sample.began
        gpu = sample.readings.get("gpu")
        # What can't be measured counts as used there, too.
        self.used = self.used or gpu is None or gpu.value is None or gpu.value > 0
        if sample.at - self.checked < 15 * MINUTE:
            return False
        self.checked = sample.at
        return not self.used and sample.at - self.began >= 120 * MINUTE


class Below:
    """GPU utilization below `floor` percent in every sample of the last `window` seconds: Job
    Defense Shield's sliding form (exactly 0, 300 minutes), IdleBot (60 minutes; its percentage is
    not published, 5 is taken), dstack (10 % for an hour, an example of its documentation)."""

    def __init__(self, floor: float, window: float) -> None:
        self.floor, self.window = floor, window
        self.since = 0.0

    def acts(self, sample: Sample) -> bool:
        gpu = sample.readings.get("gpu")
        used = gpu is None or gpu.value is None or (gpu.value > 0 and gpu.value >= self.floor)
        if used or not self.since:
            self.since = sample.at if used else sample.began
        return sample.at - self.since >= self.window


class IdleCuller:
    """jupyterhub-idle-culler: the server's last activity is `timeout` seconds old. Activity is what
    kernels tell: a cell begins or ends; one that is busy and silent is none."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.last = self.busy = 0.0

    def acts(self, sample: Sample) -> bool:
        jupyter = sample.readings.get("jupyter")
        self.last = self.last or sample.began
        if jupyter is None:
            return False  # no server of the hub's
        busy = jupyter.value or 0.0
        if busy != self.busy:
            self.busy, self.last = busy, sample.at
        self.last = max(self.last, jupyter.last)
        return sample.at - self.last >= self.timeout


RULES: dict[str, Callable[[], Rule]] = {
    "Job Defense Shield, 120 min": JobDefenseShield,
    "Job Defense Shield, sliding 300 min": lambda: Below(0.0, 300 * MINUTE),
    "IdleBot, 60 min": lambda: Below(5.0, HOUR),
    "dstack, below 10 % for 1 h": lambda: Below(10.0, HOUR),
    "idle-culler, 10 min (default)": lambda: IdleCuller(600.0),
    "idle-culler, 60 min": lambda: IdleCuller(HOUR),
}


class ByRule(Replay):
    """A replay in which another rule decides, without a warning."""

    def __init__(self, make: Callable[[], Rule]) -> None:
        super().__init__(Config(), limited=False)
        self._make = make
        self._rules: dict[str, Rule] = {}

    def take(self, entry: Entry) -> None:
        super().take(entry)
        if isinstance(entry, Label):
            # Work that was killed is not restored by its own going on, as it is with us.
            self.seats[entry.session].uses.clear()

    def sample(self, seat: Seat, sample: Sample) -> None:
        seat.last = sample.at
        name = seat.watched.session
        if seat.gone:
            if not self._back(seat, sample, self._terms(seat, sample.at)):
                return
            del self._rules[name]
        rule = self._rules.get(name)
        if rule is None:
            rule = self._rules[name] = self._make()
        seat.seconds += sample.seconds
        if rule.acts(sample):
            seat.evidence = begin(sample.at)
            self._hibernate(seat, IDLE, sample.at)
