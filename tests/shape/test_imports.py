"""What the agent loads, and what it loads only where it is configured."""

from __future__ import annotations

import subprocess
import sys


def test_no_library_of_a_remote_place_is_loaded_without_one() -> None:
    code = (
        "import sys, slurm_reclaim.daemon.reclaim_agent, slurm_reclaim.daemon.reclaimd\n"
        "print(sorted({'fsspec', 's3fs', 'gcsfs', 'botocore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
