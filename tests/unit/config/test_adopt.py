import pytest

from slurm_reclaim.config.adopt import decide, granted
from slurm_reclaim.config.schema import Adopt

FACTS = {
    "SLURM_JOB_NAME": "spawner-jupyterhub",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_ACCOUNT": "physics",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_QOS": "normal",
    "SLURM_JOB_NUM_NODES": "1",
}
NOTEBOOKS = Adopt(name="notebooks", job_name=["spawner-*"])


def test_what_was_submitted_within_a_heterogeneous_job_is_none() -> None:
    facts = FACTS | {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "7"}
    assert not decide([NOTEBOOKS], facts, "on")[0]
    assert decide([NOTEBOOKS], facts | {"SLURM_JOB_ID_HET_GROUP_0": "5"}, "on")[0]


def test_without_rules_nothing_is_managed() -> None:
    assert decide([], FACTS, "") == (
        False,
        "no [[adopt]] rule is configured, and --reclaim=on was not given",
    )


def test_no_rule_matches() -> None:
    managed, reason = decide([Adopt(user=["bob"])], FACTS, "")
    assert not managed
    assert reason == "no [[adopt]] rule matches, and --reclaim=on was not given"


def test_a_matching_rule_says_what_matched() -> None:
    assert decide([NOTEBOOKS], FACTS, "") == (
        True,
        "is managed by rule 'notebooks': job_name spawner-jupyterhub",
    )


def test_the_first_match_wins() -> None:
    urgent = Adopt(manage=False, qos=["urgent", "norm*"])
    assert decide([urgent, NOTEBOOKS], FACTS, "") == (
        False,
        "is left alone by [[adopt]] rule 1: qos normal",
    )
    assert decide([NOTEBOOKS, urgent], FACTS, "")[0]


@pytest.mark.parametrize("key", ["partition", "qos", "account", "user", "job_name", "gres"])
def test_every_given_key_must_match(key: str) -> None:
    rule = Adopt(**{"job_name": ["spawner-*"], key: ["nothing-like-it"]})
    assert decide([rule], FACTS, "")[0] is False


def test_case_matters_and_patterns_are_whole() -> None:
    assert not decide([Adopt(partition=["GPU"])], FACTS, "")[0]
    assert not decide([Adopt(partition=["gp"])], FACTS, "")[0]


def test_a_fact_that_slurm_did_not_tell_matches_nothing() -> None:
    facts = {k: v for k, v in FACTS.items() if k != "SLURM_JOB_QOS"}
    assert not decide([Adopt(qos=["*"])], facts, "")[0]


def test_the_users_word_comes_before_the_rules() -> None:
    assert decide([NOTEBOOKS], FACTS, "off") == (False, "the user said --reclaim=off")
    assert decide([Adopt(manage=False)], FACTS, "on") == (True, "the user said --reclaim=on")


@pytest.mark.parametrize("option", ["", "on"])
@pytest.mark.parametrize(
    ("fact", "words"),
    [({"SLURM_JOB_NUM_NODES": "2"}, "2 nodes"), ({"SLURM_HET_SIZE": "2"}, "heterogeneous")],
)
def test_what_can_not_be_hibernated_is_never_managed(
    option: str, fact: dict[str, str], words: str
) -> None:
    managed, reason = decide([NOTEBOOKS], FACTS | fact, option)
    assert not managed
    assert words in reason


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({}, []),
        ({"SLURM_GPUS": "0"}, []),
        # An index, so one GPU.
        ({"SLURM_JOB_GPUS": "0"}, ["gpu"]),
        ({"SLURM_GPUS_ON_NODE": "2"}, ["gpu", "gpu:2"]),
        (
            {"SLURM_JOB_GPUS": "0,1", "SLURM_GPUS_PER_NODE": "a100:2"},
            ["gpu", "gpu:a100:2", "gpu:a100"],
        ),
        # Of the job in which it was submitted.
        ({"SLURM_GPUS": "2", "SLURM_GPUS_PER_NODE": "a100:2", "SLURM_GPUS_ON_NODE": "0"}, []),
    ],
)
def test_names_of_what_was_given(facts: dict[str, str], names: list[str]) -> None:
    assert granted(facts) == names + [f"gres/{name}" for name in names]


def test_gres_patterns() -> None:
    facts = FACTS | {"SLURM_GPUS": "a100:2", "SLURM_GPUS_ON_NODE": "2"}
    assert decide([Adopt(gres=["gpu:a100"])], facts, "")[0]
    assert decide([Adopt(gres=["gres/gpu*"])], facts, "")[0]
    assert not decide([Adopt(gres=["gpu:v100*"])], facts, "")[0]
