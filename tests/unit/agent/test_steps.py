"""What is in the job but not in the session: a program, or a mere connection."""

import pytest

from slurm_reclaim.adapters.proc import steps
from slurm_reclaim.adapters.proc.tree import Process


def process(name: str = "bash", state: str = "S") -> Process:
    return Process(pid=50, inner=50, parent=40, name=name, state=state, start=1, status={})


@pytest.mark.parametrize("name", ["sshd", "sshd-session"])
def test_sshd_itself_is_a_connection(name):
    assert steps.bare_login(process(name), f"{name}: alice@pts/0", {50})


def test_a_login_shell_at_its_prompt_is_a_connection():
    assert steps.bare_login(process(), "-bash", {40})


def test_a_shell_that_waits_for_a_child_is_a_program():
    assert not steps.bare_login(process(), "-bash", {40, 50})


def test_a_shell_that_works_is_a_program():
    assert not steps.bare_login(process(state="R"), "-bash", {40})


@pytest.mark.parametrize("word", ["bash", "python3", "tmux: server", ""])
def test_anything_else_is_a_program(word):
    assert not steps.bare_login(process(), word, set())


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("4:memory:/slurm_n1/uid_1/job_7/step_batch/task_0\n", "/slurm_n1/uid_1/job_7"),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
         "/system.slice/slurmstepd.scope/job_7"),
        ("0::/init.scope\n", ""),
    ],
)  # fmt: skip
def test_the_jobs_directory_in_either_version(text, directory):
    assert steps.job_in(text) == directory
