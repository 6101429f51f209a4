"""What a program is given to read stays what it was."""

import os

import pytest

from slurm_reclaim.adapters.in_memory import file_of


def test_it_is_read_from_its_beginning_and_can_not_be_changed() -> None:
    with file_of(b"question", "asked") as file:
        again = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDWR)
        try:
            for change in (
                lambda: os.write(again, b"x"),
                lambda: os.pwrite(again, b"more", 100),
                lambda: os.ftruncate(again, 1),
            ):
                with pytest.raises(PermissionError):
                    change()
        finally:
            os.close(again)
        assert file.read() == b"question"
