"""One call to the admin API as a value, so that it can be planned, shown to a person and sent later (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import is_addressable

PARTITIONED_WITH_PROPERTIES = "application/vnd.partitioned-topic-metadata+json"
"""The content type by which a broker reads partition count and properties of a new topic."""


@dataclass(frozen=True, slots=True)
class Call(Document):
    """Method, path below `/admin/v2`, query and JSON body.

    :param has_body: send a body even when it is None (JSON `null`); some setters distinguish it from no body.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: Json = None
    has_body: bool = False
    content_type: str = "application/json"

    def document_of(self) -> JsonObject:
        """With the query as an object."""
        fields: JsonObject = {name: getattr(self, name) for name in self.__match_args__}
        return fields | {"params": dict(self.params)}

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """With the query as pairs."""
        return {**document, "params": sorted(document["params"].items())}

    def text(self) -> str:
        """`POST /namespaces/acme/orders/retention`, query included, body left out."""
        query = "&".join(f"{key}={value}" for key, value in self.params)
        return f"{self.method} {self.path}" + (f"?{query}" if query else "")


def require_exact_path(path: str) -> None:
    """Refuse a path that HTTP libraries or brokers read as another path, so that a call would change another resource.

    Encoding a name twice does not help: for a partitioned topic the broker sends the call on to the partitions, and its
    own client reads `…/t/subscription/..` as `…/t`, so that the deletion of subscription `..` deleted the topic
    (observed).

    :raises InvalidRequest: a segment is `.` or `..`, as it is or encoded, or is empty; of a subscription, whose name a
        broker decodes twice, also encoded twice.
    """
    before = ""
    for segment in path.strip("/").split("/") if path.strip("/") else ():
        name = unquote(segment)
        if not (is_addressable(name) and (before != "subscription" or is_addressable(unquote(name)))):
            raise InvalidRequest(
                f"A name that is empty, '.' or '..' cannot be addressed over HTTP: {path!r} would be read as another "
                "path. Nothing was sent. Recreate that resource under another name, or leave it out of the selection."
            )
        before = segment


def with_body(method: str, path: str, body: Json, **params: str) -> Call:
    """A call that sends `body` as JSON."""
    return Call(method, path, tuple(sorted(params.items())), body, has_body=True)


def bare(method: str, path: str, **params: str) -> Call:
    """A call without a body."""
    return Call(method, path, tuple(sorted(params.items())))


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Partition count and properties of a topic; `partitions` is 0 for a plain topic."""

    partitions: int
    properties: Mapping[str, str]
