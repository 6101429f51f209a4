"""What a remote place holds of one session, by the keys below `<session>/`."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_reclaim.adapters.store.answers import Held
from slurm_reclaim.adapters.store.directory import PACKS
from slurm_reclaim.adapters.store.files import MANIFEST, is_number
from slurm_reclaim.model.catalogue import Pack

Names = dict[str, Held]


def committed(names: Names) -> list[int]:
    """Numbers with a manifest, oldest first."""
    return sorted(n for n in begun(names) if f"{n}/{MANIFEST}" in names)


def begun(names: Names) -> set[int]:
    """Numbers of which there is anything."""
    heads = (name.partition("/") for name in names)
    return {int(head) for head, cut, _ in heads if cut and is_number(head)}


def below(names: Names, number: int) -> list[str]:
    return [name for name in names if name.startswith(f"{number}/")]


def size_below(names: Names, number: int) -> int:
    return sum(names[name].size for name in below(names, number))


def packs(names: Names) -> Iterator[Pack]:
    for name in sorted(names):
        folder, _, pack = name.partition("/")
        if folder == PACKS and pack:
            yield Pack(pack, names[name].size)
