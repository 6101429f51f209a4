"""Bindings that are older than a call: named, and no end of the child that asks."""

from __future__ import annotations

from types import SimpleNamespace

from slurm_reclaim.adapters.cuda.driver_child import Bindings

UUID = "GPU-51b00000-0000-0000-0000-00006e310001"


def old(**known: object) -> Bindings:
    bindings = Bindings.__new__(Bindings)
    bindings.way, bindings._driver = "cuda-bindings 12.9.0", SimpleNamespace(**known)
    return bindings


def test_bindings_without_a_map_of_cards_say_so() -> None:
    said, value = old().call({"do": "restore", "pid": 1, "pairs": [[UUID, UUID]]})
    assert said.startswith("cuda-bindings 12.9.0: ")
    assert "CUcheckpointGpuPair" in said
    assert value is None


def test_a_state_that_they_can_not_read_is_a_result() -> None:
    def state(pid: int) -> object:
        raise ValueError(f"{pid} is not a valid CUprocessState")

    said, _ = old(cuCheckpointProcessGetState=state).call({"do": "state", "pid": -1})
    assert said == "cuda-bindings 12.9.0: -1 is not a valid CUprocessState"
