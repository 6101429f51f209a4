"""Where the PIDs of a session begin."""

from slurm_reclaim.daemon.start_terms import fresh_last_pid

LEAST_PID_MAX = 32768


def test_sessions_of_one_home_do_not_share_their_pids():
    begins = [fresh_last_pid(job) for job in range(1000, 1900)]
    assert len(set(begins)) == 900
    assert min(b - a for a, b in zip(sorted(begins), sorted(begins)[1:], strict=False)) >= 32


def test_they_lie_between_what_the_kernel_reserves_and_the_least_limit():
    begins = [fresh_last_pid(job) for job in (1, 899, 900, 4_294_967_293)]
    assert all(299 <= begin < LEAST_PID_MAX - 1000 for begin in begins)
