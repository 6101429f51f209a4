"""Where the PIDs of a session begin, and whose it is."""

import os
import pwd

from slurm_reclaim.config.schema import Adopt, Config
from slurm_reclaim.daemon.start_terms import fresh_last_pid, managed_by

LEAST_PID_MAX = 32768


def test_sessions_of_one_home_do_not_share_their_pids():
    begins = [fresh_last_pid(job) for job in range(1000, 1900)]
    assert len(set(begins)) == 900
    assert min(b - a for a, b in zip(sorted(begins), sorted(begins)[1:], strict=False)) >= 32


def test_they_lie_between_what_the_kernel_reserves_and_the_least_limit():
    begins = [fresh_last_pid(job) for job in (1, 899, 900, 4_294_967_293)]
    assert all(299 <= begin < LEAST_PID_MAX - 1000 for begin in begins)


def test_a_rule_goes_by_the_owner_whatever_the_job_was_submitted_with() -> None:
    owner = pwd.getpwuid(os.getuid()).pw_name
    told = {"uid": str(os.getuid()), "env.SLURM_JOB_USER": "vip"}
    assert not managed_by(Config(adopt=[Adopt(user=["vip"])]), told)[0]
    assert managed_by(Config(adopt=[Adopt(user=[owner])]), told)[0]
