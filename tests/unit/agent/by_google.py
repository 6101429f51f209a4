"""The messages of adapters/criu/schema.py as classes of google.protobuf: what ours are held to."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from slurm_reclaim.adapters.criu.schema import MESSAGES


def message(name: str) -> Any:
    """The class of that name: File, Core, PsTree."""
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="slurm_reclaim/criu.proto", package="slurm_reclaim.criu", syntax="proto2"
    )
    for name, fields in MESSAGES.items():
        declared = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            entry = declared.field.add(name=field, number=number)
            entry.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind.islower():
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
            else:
                entry.type = kinds.TYPE_MESSAGE
                entry.type_name = f".slurm_reclaim.criu.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"slurm_reclaim.criu.{name}")
        )
        for name in MESSAGES
    }
