"""The metadata in front of a stored entry, as a protobuf message that knows only what is looked at (pure).

Decoded by protobuf's own parser, which takes a third of what a loop in Python does; it keeps fields that it does not
know and writes them back, so that all fields count in a comparison but those that are named here as a copy's own.
Numbers and types: `MessageMetadata` of PulsarApi.proto, 4.2.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

OF_THE_COPY = "of_the_copy"
"""Names the group of all fields that only one of two copies has; clearing it clears whichever was set."""

_PACKAGE = "pulsar_fleet"
_FIELD = descriptor_pb2.FieldDescriptorProto
_LOOKED_AT = (
    ("publish_time", 3, _FIELD.TYPE_UINT64),
    ("messages", 11, _FIELD.TYPE_INT32),
    ("marker_type", 20, _FIELD.TYPE_INT32),
)
_OF_THE_COPY = (
    ("replicated_from", 5, _FIELD.TYPE_BYTES),
    ("replicate_to", 7, _FIELD.TYPE_BYTES),
    ("schema_version", 16, _FIELD.TYPE_BYTES),  # each cluster counts its own
    ("txnid_least_bits", 22, _FIELD.TYPE_UINT64),  # the copy of a committed message is no part of a transaction
    ("txnid_most_bits", 23, _FIELD.TYPE_UINT64),
    ("schema_id", 32, _FIELD.TYPE_BYTES),
)


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="entry_metadata.proto", package=_PACKAGE, syntax="proto2")
    pair = file.message_type.add(name="KeyValue")
    for number, name in enumerate(("key", "value"), start=1):
        pair.field.add(name=name, number=number, type=_FIELD.TYPE_BYTES, label=_FIELD.LABEL_OPTIONAL)
    metadata = file.message_type.add(name="EntryMetadata")
    metadata.oneof_decl.add(name=OF_THE_COPY)
    for name, number, kind in _LOOKED_AT:
        metadata.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    for name, number, kind in _OF_THE_COPY:
        # Of a group only the field that came last is kept, which is all the same for fields that are dropped.
        metadata.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL, oneof_index=0)
    metadata.field.add(
        name="properties",
        number=4,
        type=_FIELD.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.KeyValue",
        label=_FIELD.LABEL_REPEATED,
    )
    return file


def _message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_described())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.EntryMetadata"))


EntryMetadata = _message_class()
