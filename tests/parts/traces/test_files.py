"""Traces as files: what is written is read again, and every mistake is named with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_reclaim.adapters.trace import LONGEST_LINE, read, write, writing
from slurm_reclaim.errors import TraceError
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.trace import Entry, Header, Label, Measured, Return, Watched

ENTRIES: list[Entry] = [
    Header("lab", "by hand", by_session=True, complete=True),
    Watched("s", "alice", "bio", "gpu", "normal", "nb", "gres/gpu=1", "n1", 5.0, ("fuse: sshfs",)),
    Label("s", 0.0, 10.0, "reading", True),
    Return("s", 10.0),
    Measured("s", Sample(30.0, 30.0, {"cpu": Reading(0.5), "gpu": Reading(None, what="MIG")})),
    Measured("s", Sample(60.0, 30.0, {"terminal": Reading(1.0, last=42.5)})),
]
HEADER = '{"kind":"trace","version":1,"cluster":"lab"}'
SESSION = '{"kind":"session","session":"s"}'
SAMPLE = '{"kind":"sample","session":"s","at":30,"seconds":30,"readings":{"cpu":{"value":0.1}}}'


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    write(path, ENTRIES)
    assert list(read(path)) == ENTRIES


def test_compressed_is_known_by_content_not_by_name(tmp_path: Path) -> None:
    write(str(tmp_path / "t.zst"), ENTRIES)
    (tmp_path / "t.zst").rename(tmp_path / "plain")
    assert len(list(read(str(tmp_path / "plain")))) == len(ENTRIES)
    assert (tmp_path / "plain").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


def test_what_is_not_said_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(str(path), ENTRIES)
    sample = json.loads(path.read_text().splitlines()[4])
    assert sample["readings"]["cpu"] == {"value": 0.5}


def lines(tmp_path: Path, *text: str) -> list[Entry]:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(text) + "\n")
    return list(read(str(path)))


def test_a_minimal_trace(tmp_path: Path) -> None:
    assert len(lines(tmp_path, HEADER, SESSION, "", SAMPLE, SAMPLE)) == 4


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ([SESSION], 1, "header"),
        ([HEADER, HEADER], 2, "header"),
        ([HEADER.replace("1", "2")], 1, "version 2"),
        ([HEADER, "{"], 2, "truncated"),
        ([HEADER, '{"kind":"hello"}'], 2, "hello"),
        ([HEADER, SAMPLE], 2, "'s' has no entry"),
        ([HEADER, SESSION, SESSION], 3, "there before"),
        ([HEADER, SESSION, SAMPLE.replace('"at":30', '"at":"x"')], 3, "$.at"),
        ([HEADER, SESSION, SAMPLE.replace(":0.1", ':"0"')], 3, "value"),
        ([HEADER, SESSION, SAMPLE.replace("cpu", "cpux")], 3, "cpux"),
        ([HEADER, SESSION, SAMPLE.replace('"seconds":30', '"seconds":0')], 3, "seconds"),
        ([HEADER, SESSION, SAMPLE.replace("}}}", '}},"odd":1}')], 3, "odd"),
        ([HEADER, SESSION, SAMPLE, SAMPLE.replace(":30,", ":29,", 1)], 4, "older"),
        ([HEADER, SESSION, SAMPLE, '{"kind":"return","session":"s","at":9}'], 4, "before"),
        (
            [
                HEADER, SESSION,
                '{"kind":"label","session":"s","from":9,"to":9,"behaviour":"b","use":"idle"}',
            ],
            3, "ends after",
        ),
        (
            [
                HEADER, SESSION,
                '{"kind":"label","session":"s","from":1,"to":9,"behaviour":"b","use":"maybe"}',
            ],
            3, "maybe",
        ),
        ([HEADER, "x" * (LONGEST_LINE + 5)], 2, "longer"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_line(
    tmp_path: Path, text: list[str], line: int, what: str
) -> None:
    with pytest.raises(TraceError) as caught:
        lines(tmp_path, *text)
    assert what in str(caught.value)
    assert f"t.jsonl:{line}:" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(TraceError, match="empty"):
        list(read(str(tmp_path / "empty")))
    with pytest.raises(TraceError, match="No such file"):
        list(read(str(tmp_path / "none")))
    with pytest.raises(TraceError, match="can't be written"):
        write(str(tmp_path / "none" / "t"), ENTRIES)
    torn = tmp_path / "torn.zst"
    torn.write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 100)
    with pytest.raises(TraceError, match="zstd"):
        list(read(str(torn)))


def test_a_recording_can_be_read_while_it_grows(tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    with writing(path) as put:
        put(ENTRIES[:2])
        assert len(list(read(path))) == 2
        put(ENTRIES[2:])
    assert list(read(path)) == ENTRIES


def test_a_large_trace_is_never_whole_in_memory(tmp_path: Path) -> None:
    """Fifteen thousand samples are read while no more than a few of them exist."""
    import tracemalloc

    path = str(tmp_path / "t.jsonl.zst")
    row = {name: Reading(0.0) for name in ("cpu", "io", "network", "terminal")}
    samples = (Measured("s", Sample(30.0 * n, 30.0, row)) for n in range(1, 15_000))
    write(path, (*ENTRIES[:2], *samples), level=1)
    tracemalloc.start()
    try:
        count = sum(1 for _ in read(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 15_001
    assert peak < 2 << 20
