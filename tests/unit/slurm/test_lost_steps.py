"""What the cluster tests take for Slurm's own fault, by lines as slurmd 24.11.5 wrote them."""

import pytest

from tests.cluster.slurm_faults import lost_steps

SIGNALLED = "[2026-11-30T19:01:40.066] [25.{}] debug:  signaling condition\n"
AGAIN = "[2026-11-30T19:01:41.741] [25.{}] debug:  _handle_terminate for StepId=25.{} uid=0\n"
GIVEN_UP = (
    "[2026-11-30T19:02:41.000] [25.{}] error: *** EXTERN STEP FOR 25 STEPD TERMINATED ON n1 AT "
    "2026-11-30T19:02:40 DUE TO JOB NOT ENDING WITH SIGNALS ***\n"
)


@pytest.mark.parametrize(
    ("log", "lost"),
    [
        (SIGNALLED + AGAIN + GIVEN_UP, ["25.extern"]),
        (AGAIN + GIVEN_UP, []),  # a process that can't be killed
        (SIGNALLED + AGAIN, []),  # ended as it should
        ("", []),
    ],
)
def test_only_a_step_without_processes_is_lost_by_slurm(log: str, lost: list[str]) -> None:
    assert lost_steps(log.replace("{}", "extern")) == lost


def test_the_end_of_another_step_says_nothing() -> None:
    log = SIGNALLED.replace("{}", "batch") + GIVEN_UP.replace("{}", "extern")
    assert lost_steps(log) == []
