import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_reclaim.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("45m", 2700), ("1h30m", 5400), ("1h 30m", 5400), ("500ms", 0.5), ("0s", 0)],
)
def test_durations_carry_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["30", "", "m", "5 minutes", "-3s", "1h30", "1e3s"])
def test_what_is_no_duration_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration with a unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 << 20), ("2TB", 2 * 10**12), ("1.5 KiB", 1536), ("0B", 0)]
)
def test_sizes_carry_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["64", "64M", "64mib", "MiB", ""])
def test_what_is_no_size_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size with a unit"):
        parse_size(text)


@given(st.integers(0, 10**12))
def test_written_and_read_again_a_duration_is_the_same(milliseconds: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.integers(0, 1 << 55))
def test_written_and_read_again_a_size_is_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size
