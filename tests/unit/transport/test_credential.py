"""What is bound by a credential, and what happens to one made for something else."""

from __future__ import annotations

import pytest

from slurm_reclaim.adapters.transport import credential as c
from slurm_reclaim.errors import CredentialRefused
from tests.unit.transport.standin import StandInMunge, StandInMunged

BODY = b'{"reason":""}'
REQUEST = {"host": "ctl", "method": "POST", "path": "/v1/x?a=1", "body": BODY, "now": 1000.0}


@pytest.fixture
def munge() -> StandInMunge:
    return StandInMunge(StandInMunged(), uid=2001)


def claim(**change: object) -> c.RequestClaim:
    facts = {"host": "ctl", "method": "POST", "path": "/v1/x?a=1", "body": c.digest(BODY)}
    return c.RequestClaim(**{**facts, "time": 1000.0, **change})  # type: ignore[arg-type]


def test_a_request_comes_through_with_its_caller(munge: StandInMunge) -> None:
    made = claim()
    found, by = c.open_request(munge, c.SCHEME + c.seal(munge, made))
    assert (found, by.uid) == (made, 2001)
    c.check_request(found, **REQUEST)  # type: ignore[arg-type]
    assert claim().nonce != claim().nonce


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "other"}, "controller.host|for the controller 'other'"),
        ({"method": "GET"}, "another request"),
        ({"path": "/v1/x?a=2"}, "another request"),
        ({"body": c.digest(b"{}")}, "another request"),
        ({"time": 699.0}, "differ by 301 s"),
        ({"time": 1301.0}, "differ by 301 s"),
    ],
)
def test_a_request_made_for_something_else(change: dict[str, object], words: str) -> None:
    with pytest.raises(CredentialRefused, match=words):
        c.check_request(claim(**change), **REQUEST)  # type: ignore[arg-type]


@pytest.mark.parametrize("header", ["", "Basic abc", "MUNGE", "MUNGE nonsense"])
def test_no_credential(munge: StandInMunge, header: str) -> None:
    with pytest.raises(CredentialRefused):
        c.open_request(munge, header)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"v":1}', b"\xff", b'{"nonce":1}'])
def test_a_credential_made_by_another_program(munge: StandInMunge, payload: bytes) -> None:
    with pytest.raises(CredentialRefused, match="does not say"):
        c.open_request(munge, c.SCHEME + munge.encode(payload))


def test_another_version_is_named(munge: StandInMunge) -> None:
    with pytest.raises(CredentialRefused, match="version 2"):
        c.open_request(munge, c.SCHEME + c.seal(munge, claim(v=2)))


def test_an_answer_is_bound_to_its_request(munge: StandInMunge) -> None:
    made = c.AnswerClaim("n1", 200, c.digest(BODY))
    found, uid = c.open_answer(munge, c.seal(munge, made))
    assert (found, uid) == (made, 2001)
    c.check_answer(found, nonce="n1", status=200, body=BODY)
    for change in ({"nonce": "n2"}, {"status": 404}, {"body": b""}):
        facts = {"nonce": "n1", "status": 200, "body": BODY, **change}
        with pytest.raises(CredentialRefused, match="another answer"):
            c.check_answer(found, **facts)  # type: ignore[arg-type]
