"""What versions of NVIDIA's driver can do for checkpoints (docs/gpu.md has the sources)."""

from __future__ import annotations

# The first with cuCheckpointProcess* and with processes that use NVML, as PyTorch's do.
API = (570,)
# Below it, many PyTorch processes that can be checkpointed can't be restored.
FRAMEWORKS = (575, 57, 8)
# The first that restores onto another card than the one it was saved from.
OTHER_CARD = (580,)
ARM64 = (595,)


def version(text: str) -> tuple[int, ...]:
    """`580.65.06` -> (580, 65, 6); what is no number ends it, "" and the like are ()."""
    numbers: list[int] = []
    for word in text.split("."):
        if not word.isdecimal():
            break
        numbers.append(int(word))
    return tuple(numbers)


def written(number: tuple[int, ...]) -> str:
    """As NVIDIA writes it: (575, 57, 8) -> `575.57.08`."""
    return ".".join([str(number[0]), *(f"{part:02d}" for part in number[1:])])


def problem(driver: str, arch: str) -> str:
    """Why no CUDA state can be restored with this driver on a machine `arch` (as of uname -m), ""
    where it can."""
    known = version(driver)
    if not known:
        return "the version of its NVIDIA driver is not known"
    if known < API:
        return (
            f"its NVIDIA driver {driver} is older than {written(API)}, "
            "the first with the checkpoint API"
        )
    if arch == "aarch64" and known < ARM64:
        return (
            f"its NVIDIA driver {driver} is older than {written(ARM64)}, "
            "the first with checkpoints on aarch64"
        )
    return ""


def advice(driver: str) -> str:
    """What will often not work with a driver that is new enough, "" where nothing is known."""
    known = version(driver)
    if known < FRAMEWORKS:
        return (
            f"with NVIDIA driver {driver} many PyTorch sessions can't be restored; "
            f"{written(FRAMEWORKS)} mends that"
        )
    if known < OTHER_CARD:
        return (
            f"with NVIDIA driver {driver} a session comes back on the very same cards only; "
            f"from {written(OTHER_CARD)} on others of their model will do"
        )
    return ""
