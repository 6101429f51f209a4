"""The lab of the benchmarks: one node, so that both sides meet the same disk."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAB = HERE.parent / "cluster" / "lab"
NAME = os.environ.get("RECLAIM_BENCH_LAB", "bench")
PYTHON = "/opt/slurm-reclaim/bin/python3"
IMAGES = "/shared/bench/images"
STORE = "/shared/reclaim"


class BenchLab:
    def exec(
        self, node: str, *command: str, user: str = "root", stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(LAB), "--name", NAME, "exec", node, "--user", user, "--", *command],
            input=stdin, text=True, capture_output=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def put(self, name: str) -> str:
        path = f"/shared/inside/{name}"
        self.exec(
            "ctl",
            "sh",
            "-c",
            f"mkdir -p /shared/inside; cat > {path}",
            stdin=(HERE / name).read_text(),
        )
        return path

    def up(self) -> None:
        subprocess.run([str(LAB), "--name", NAME, "up", "--nodes", "1"], check=True)
        self.exec("ctl", "mkdir", "-p", "/shared/bench")

    @staticmethod
    def even() -> None:
        """Nothing waits to be written, and memory that was in use a moment ago is free: a virtual
        machine pays for memory that it touches for the first time, and so would who writes
        second."""
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")

    def events(self, job: int, kind: str) -> dict[str, Any]:
        """The last event of that kind."""
        said = self.exec("ctl", "reclaim", "events", str(job), "--json").stdout
        return [e for e in json.loads(said)["events"] if e["kind"] == kind][-1]

    def forget(self, *jobs: int) -> None:
        """Their checkpoints would fill the disk, and the product keeps them for as long as Slurm
        shows the job."""
        self.exec("ctl", "sh", "-c", "rm -rf " + " ".join(f"{STORE}/*/{job}.*" for job in jobs))

    def bare_dump(self, node: str, job: int, folder: str = IMAGES) -> dict[str, Any]:
        """`criu dump` + fsync of a session that runs on: seconds, bytes."""
        done = self.exec(node, PYTHON, self.put("inside.py"), "dump", str(job), folder)
        return json.loads(done.stdout)
