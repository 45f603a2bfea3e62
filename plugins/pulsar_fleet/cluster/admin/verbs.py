"""The HTTP methods of one cluster's admin API, with JSON; no write reaches a broker on another way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsar_fleet.cluster.admin.bundle_guard import store_bundles
from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.admin.shadow_guard import ShadowGuard
from pulsar_fleet.cluster.json import Json

ADMIN = "/admin/v2"


class AdminVerbs:
    """Calls for procedures that derive paths from a catalogue; every write passes the guards.

    :param deletes_shadows_alone: see `ShadowGuard`.
    """

    def __init__(self, http: BrokerHttp, deletes_shadows_alone: Callable[[], Awaitable[bool]]) -> None:
        self.http = http
        self._shadow_guard = ShadowGuard(http, ADMIN, deletes_shadows_alone)

    async def get(self, path: str, *, answered_retry_seconds: float | None = None, **params: str | int | bool) -> Json:
        """`GET /admin/v2{path}`: the JSON answered, or None for an empty answer.

        :param answered_retry_seconds: for how long a failure that a broker answered is retried, if not as any other.
        """
        return self.http.document(
            await self.http.call("GET", ADMIN + path, params=params, answered_retry_seconds=answered_retry_seconds)
        )

    async def get_v3(self, path: str, *, answered_retry_seconds: float | None = None) -> Json:
        """`GET /admin/v3{path}`: functions, connectors, packages and transactions."""
        call = self.http.call("GET", "/admin/v3" + path, answered_retry_seconds=answered_retry_seconds)
        return self.http.document(await call)

    async def put(self, path: str, body: Json = None, **params: str | int | bool) -> None:
        """`PUT /admin/v2{path}` with a JSON body."""
        await self.send(_call("PUT", path, params, body))

    async def post(self, path: str, body: Json = None, **params: str | int | bool) -> None:
        """`POST /admin/v2{path}` with a JSON body."""
        await self.send(_call("POST", path, params, body))

    async def delete(self, path: str, **params: str | int | bool) -> None:
        """`DELETE /admin/v2{path}`."""
        await self.send(_call("DELETE", path, params))

    async def send(self, call: Call) -> None:
        """Send a planned call.

        :raises PreconditionFailed: a shadow topic would delete data of its source, or a namespace could lose its
            bundles; nothing was sent.
        """
        await self._shadow_guard.check(call)
        await store_bundles(self.http, ADMIN, call)
        await self.http.call(
            call.method,
            ADMIN + call.path,
            params=dict(call.params),
            body=call.body,
            has_body=call.has_body,
            content_type=call.content_type,
        )


def _call(method: str, path: str, params: dict[str, str | int | bool], body: Json = None) -> Call:
    query = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in params.items()}
    return Call(method, path, tuple(query.items()), body, has_body=body is not None)
