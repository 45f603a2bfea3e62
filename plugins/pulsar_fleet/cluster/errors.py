"""Errors by who must act.

FleetError
├── Transient      nobody: we retry (time-outs, cut connections, 429, 5xx that heal)
├── Rejected       the caller: the request itself is wrong (400, 405, 412, 422)
├── Denied         the operator: credentials or rights (401, 403)
│   ├── Unauthenticated    the broker does not know us: our token is missing, expired or of another key
│   ├── NotAllowed         the broker knows us, and our role may not do this
│   └── BrokerCredentials  the broker knows us, and cannot log in to its own cluster
├── Conflict       the caller: the state changed under us, plan again (409)
├── Missing        the caller: the resource does not exist (404)
└── Refused        the operator: a gate or hazard of ours said no; the message names the way on
"""

from __future__ import annotations


class FleetError(Exception):
    """A failure that we understand: the message is one sentence for a person, without a stack trace.

    :param message: what failed, on which cluster and resource, the value, and what to do next.
    :param cluster: name of the cluster that answered, where there is one.
    :param status: HTTP status of the broker's answer, where there is one.
    """

    def __init__(self, message: str, *, cluster: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.cluster = cluster
        self.status = status


class Unavailable(FleetError):
    """The same call may succeed later; it was already retried for as long as the client allows."""


class InvalidRequest(FleetError):
    """The request is wrong as it stands; sending it again cannot help."""


class PermissionDenied(FleetError):
    """The broker does not know us, or does not let this role do this."""


class Unauthenticated(PermissionDenied):
    """The broker does not know us: the token is missing, expired or signed with another key."""


class NotAllowed(PermissionDenied):
    """The broker knows us, and our role may not do this: what is there is unknown, never absent."""


class BrokerCredentials(PermissionDenied):
    """The broker knows us, and cannot log in to its own cluster: its `brokerClient…` settings are wrong."""


class Conflict(FleetError):
    """What is there is not what the caller expected; read again and plan again."""


class NotFound(FleetError):
    """The named resource does not exist on this cluster."""


class PreconditionFailed(FleetError):
    """A check of ours forbids it, because data or clients would be harmed."""
