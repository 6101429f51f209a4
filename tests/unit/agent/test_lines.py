import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_reclaim.adapters.transport import lines
from slurm_reclaim.errors import BadRequest

# By hand: of strategies for all of Unicode the first use takes seconds, for want of its tables.
KEYS = st.text("abcxyzABCXYZ_.", min_size=1, max_size=20)
VALUES = st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@given(st.dictionaries(KEYS, VALUES))
def test_any_value_survives(message):
    assert lines.decode(lines.encode(message)) == message


def test_a_value_can_not_add_a_line():
    raw = lines.encode({"op": "start", "env.SLURM_JOB_NAME": "a\nmode=fresh\n\n"})
    assert lines.decode(raw) == {"op": "start", "env.SLURM_JOB_NAME": "a\nmode=fresh\n\n"}
    assert raw.count(b"\n\n") == 1


@pytest.mark.parametrize("raw", [b"no equals\n\n", b"=x\n\n", b"a=%4\n\n", b"a=%zz\n\n"])
def test_malformed_is_refused(raw):
    with pytest.raises(BadRequest):
        lines.decode(raw)


def test_a_number_must_be_one():
    assert lines.number({"job": "12"}, "job") == 12
    for bad in ({}, {"job": ""}, {"job": "1x"}, {"job": "--1"}):
        with pytest.raises(BadRequest, match="not a number"):
            lines.number(bad, "job")
