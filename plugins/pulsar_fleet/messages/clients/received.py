"""A received message as a value, for callables of users and for events of Airflow."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pulsar_fleet.cluster.json import JsonObject

if TYPE_CHECKING:
    import pulsar

MOST_CONTENT_BYTES = 16_384
"""Events of Airflow are rows of its database, so they have the content of messages up to this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One delivery of a message.

    :param topic: the topic, or the partition of it.
    :param message_id: `ledger:entry:partition:index in its batch`; the same in every delivery.
    :param key: the key by which it was routed; None without one.
    :param publish_time: ms since 1970.
    :param redeliveries: how often the broker knows to have delivered it before.
    """

    topic: str
    message_id: str
    content: bytes
    key: str | None
    properties: Mapping[str, str]
    publish_time: int
    redeliveries: int

    @classmethod
    def of(cls, message: pulsar.Message) -> Self:
        """Copy what the client received."""
        identity = message.message_id()
        parts = (identity.ledger_id(), identity.entry_id(), identity.partition(), identity.batch_index())
        return cls(
            topic=message.topic_name(),
            message_id=":".join(map(str, parts)),
            content=message.data(),
            key=message.partition_key() or None,
            properties=dict(message.properties()),
            publish_time=message.publish_timestamp(),
            redeliveries=message.redelivery_count(),
        )

    def to_json(self, most_content_bytes: int = MOST_CONTENT_BYTES) -> JsonObject:
        """As JSON: `content` is text, or Base64 where it is no UTF-8, which `encoding` says; both None if it is larger
        than `most_content_bytes`.
        """
        content, encoding = _text(self.content) if len(self.content) <= most_content_bytes else (None, None)
        return {
            "topic": self.topic,
            "message_id": self.message_id,
            "content": content,
            "encoding": encoding,
            "bytes": len(self.content),
            "key": self.key,
            "properties": dict(self.properties),
            "publish_time": self.publish_time,
            "redeliveries": self.redeliveries,
        }


def _text(content: bytes) -> tuple[str, str]:
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"
