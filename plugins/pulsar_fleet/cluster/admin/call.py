"""One call to the admin API as a value, so that it can be planned, shown to a person and sent later (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject


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


def with_body(method: str, path: str, body: Json, **params: str) -> Call:
    """A call that sends `body` as JSON."""
    return Call(method, path, tuple(sorted(params.items())), body, has_body=True)


def bare(method: str, path: str, **params: str) -> Call:
    """A call without a body."""
    return Call(method, path, tuple(sorted(params.items())))
