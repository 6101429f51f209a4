"""Names of sessions, as people, nodes and directories write them."""

import pytest

from slurm_reclaim.errors import BadRequest
from slurm_reclaim.model.catalogue import is_older, parse_checkpoint_ref
from slurm_reclaim.model.ids import SessionId, parse_session_id

ODD = [
    "lab/7².2001.1000",  # digits that are no numbers
    "lab/٧.2001.1000",
    "lab/007.2001.1000",
    "lab/0.2001.1000",
    "lab/7.-1.1000",
    "lab/7.2001.1000\n",
    "lab/" + "7" * 5000 + ".2001.1000",
    "lab/7.2001." + "1" * 5000,
    "../lab/7.2001.1000",
    "../7.2001.1000",
    "/7.2001.1000",
    "lab/7.2001",
    "7.2001.1000",
    "",
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_what_names_no_session_is_refused(text):
    with pytest.raises(BadRequest, match="is not a session id") as refused:
        parse_session_id(text)
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("id", [SessionId("lab", 7, 2001, 1000), SessionId("a-b.c", 1, 0, 0)])
def test_there_is_one_way_to_write_a_name(id):
    assert parse_session_id(str(id)) == id


@pytest.mark.parametrize("text", [odd for odd in ODD if "/" in odd.strip()][:5])
def test_nor_does_it_name_a_checkpoint(text):
    with pytest.raises(BadRequest):
        parse_checkpoint_ref(f"{text}/0")


def test_a_pack_of_another_name_is_not_older():
    assert not is_older("²-5f1c09aa.pack", 5)
    assert is_older("4-5f1c09aa.pack", 5)
