"""What a broker's refusal means: it answers 401 for a bad token, a role without rights and its own bad credentials."""

from __future__ import annotations

import html
import re

import httpx

from pulsar_fleet.cluster.errors import BrokerCredentials, NotAllowed, PermissionDenied, Unauthenticated

# What a broker answers (401, or 500 around it) when its own call, to itself or to another broker, was not let in.
_BROKER_WAS_REFUSED = re.compile(r"HTTP 401\b|Failed to authenticat")


def read_reason(answer: httpx.Response) -> tuple[str, bool]:
    """The broker's reason in one line, and whether it knew us (a refusal by role is JSON, of a token HTML or empty)."""
    try:
        reason = str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        # Some refusals, such as those of a schema, are only told in the title of an error page.
        title = re.search(r"<title>(?:Error \d+ )?(.*?)</title>", answer.text, re.DOTALL)
        text = html.unescape(" ".join(title[1].split())) if title else answer.text.strip()
        return (text.splitlines() or ["no reason given"])[0][:400], False
    message = reason.partition("Message:")[2] or reason
    return " ".join(message.partition("Stacktrace")[0].split())[:400], True


def denial(cluster: str, status: int, text: str, reason: str, *, knew_us: bool) -> PermissionDenied | None:
    """The error for a call that was not let in, None if it failed for another reason.

    :param text: who answered what, the reason included.
    :param knew_us: see `read_reason`.
    """
    if status in (401, 500) and knew_us and _BROKER_WAS_REFUSED.search(reason):
        return BrokerCredentials(
            f"{cluster} accepts our credentials, but its brokers cannot log in to each other ({status}): correct "
            "brokerClientAuthenticationPlugin and brokerClientAuthenticationParameters of every broker.",
            cluster=cluster,
            status=status,
        )
    if status == 401 and not knew_us:
        return Unauthenticated(
            f"{cluster} does not accept our credentials (401): the token is missing, expired "
            "or signed with another key. Check the token of this connection.",
            cluster=cluster,
            status=status,
        )
    if status in (401, 403) and knew_us:
        return NotAllowed(
            f"{text.rstrip('. ')}. The token is accepted, but its role may not do this: ask for the right, "
            "or use the token of another role.",
            cluster=cluster,
            status=status,
        )
    return None
