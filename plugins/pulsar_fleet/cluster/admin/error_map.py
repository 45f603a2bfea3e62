"""Which error an answer of a broker is: 401 may mean a bad token, a missing right and its own bad credentials."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import httpx

from pulsar_fleet.cluster.errors import (
    BrokerCredentials,
    Conflict,
    FleetError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

_BEYOND_LIMIT = "Exceed the maximum number of"
"""Part of the reason of a 409 about a subscription that a limit refuses; else it exists already."""
RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
ALREADY_MIGRATED = "already migrated"
SCHEMA_CHECK_FAILED = "Error during schema compatibility check"
SCHEMA_REFUSALS = (SCHEMA_CHECK_FAILED, "Incompatible schema")
_BY_STATUS: Mapping[int, type[FleetError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
}
_BY_REASON: Mapping[str, type[FleetError]] = {
    ALREADY_MIGRATED: Conflict,
    # With 412: the topic's broker left, and no other has it yet.
    "Can't find owner for topic": Unavailable,
    "Failed to find ownership for topic": Unavailable,
    **dict.fromkeys(SCHEMA_REFUSALS, InvalidRequest),
}
"""Part of the reason of a 412 or 500 → its error."""
# A broker's answer (401, or 500 with this text) when its own call to itself or another broker was refused.
_BROKER_WAS_REFUSED = re.compile(r"HTTP 401\b|Failed to authenticat")


def failure(cluster: str, method: str, path: str, answer: httpx.Response) -> FleetError:
    """The error for an answer that is neither 2xx nor a redirect, by who must act."""
    status = answer.status_code
    reason, authenticated = read_reason(answer)
    text = f"{cluster} answered {status} to {method} {path}: {reason}"
    if denied := _denial(cluster, status, text, reason, authenticated=authenticated):
        return denied
    kind = Unavailable if status in RETRY_STATUSES else _BY_STATUS.get(status, InvalidRequest)
    if status in (412, 500):
        kind = next((error for part, error in _BY_REASON.items() if part in reason), kind)
    if status == 409 and _BEYOND_LIMIT in reason:
        kind = InvalidRequest
    return kind(text, cluster=cluster, status=status)


def is_migrated(error: Exception) -> bool:
    """Whether the broker does not load a topic because a migration ended it: it has no clients, and gets none."""
    return ALREADY_MIGRATED in str(error)


def read_reason(answer: httpx.Response) -> tuple[str, bool]:
    """The broker's reason in one line, and whether it accepted our token.

    A refusal of the role is JSON; a refusal of the token is HTML or empty.
    """
    try:
        reason = str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        # Some refusals, such as those of a schema, have their reason only in the title of an error page.
        title = re.search(r"<title>(?:Error \d+ )?(.*?)</title>", answer.text, re.DOTALL)
        text = html.unescape(" ".join(title[1].split())) if title else answer.text.strip()
        return (text.splitlines() or ["no reason given"])[0][:400], False
    message = reason.partition("Message:")[2] or reason
    return " ".join(message.partition("Stacktrace")[0].split())[:400], True


def _denial(cluster: str, status: int, text: str, reason: str, *, authenticated: bool) -> PermissionDenied | None:
    """The error for a call without permission, None if it failed for another reason.

    :param text: cluster, status, call and reason.
    :param authenticated: see `read_reason`.
    """
    if status in (401, 500) and authenticated and _BROKER_WAS_REFUSED.search(reason):
        return BrokerCredentials(
            f"{cluster} accepts our credentials, but its brokers cannot log in to each other ({status}): correct "
            "brokerClientAuthenticationPlugin and brokerClientAuthenticationParameters of every broker.",
            cluster=cluster,
            status=status,
        )
    if status == 401 and not authenticated:
        return Unauthenticated(
            f"{cluster} does not accept our credentials (401): the token is missing, expired "
            "or signed with another key. Check the token of this connection.",
            cluster=cluster,
            status=status,
        )
    if status in (401, 403) and authenticated:
        return NotAllowed(
            f"{text.rstrip('. ')}. The token is accepted, but its role may not do this: ask for the right, "
            "or use the token of another role.",
            cluster=cluster,
            status=status,
        )
    return None
