"""Traces for tests and benchmarks: converted, generated, recorded."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
