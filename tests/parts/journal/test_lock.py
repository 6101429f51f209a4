"""The journal is one controller's: two processes at one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slurm_reclaim.adapters.journal.engine import open_engine
from slurm_reclaim.adapters.journal.lock import take_lock


def test_a_second_controller_is_refused_and_told_who_holds_the_journal(tmp_path: Path) -> None:
    lock = take_lock(open_engine("", str(tmp_path)))
    second = (
        "import sys\n"
        "from slurm_reclaim.adapters.journal.engine import open_engine\n"
        "from slurm_reclaim.adapters.journal.lock import take_lock\n"
        "take_lock(open_engine('', sys.argv[1]))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", second, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert "Refused: another reclaimd (pid " in answer.stderr
    lock.release()
    take_lock(open_engine("", str(tmp_path))).release()
