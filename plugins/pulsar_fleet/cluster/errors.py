"""Errors by who must act, named with gRPC's words; HTTP statuses of the broker in brackets.

FleetError
├── Unavailable            nobody: it was retried; a later call may succeed (time-outs, cut connections, 429, 5xx)
├── InvalidRequest         the caller: correct the request (400, 405, 412, 422)
├── PermissionDenied       the operator: correct credentials or rights (401, 403)
│   ├── Unauthenticated    the broker does not accept our token: it is missing, expired or of another key
│   ├── NotAllowed         the broker accepts our token, but our role may not do this
│   └── BrokerCredentials  the broker accepts our token, but cannot log in to its own cluster
├── NotFound               the caller: the resource does not exist (404)
├── Conflict               the caller: the state has changed; read it again and plan again (409)
└── PreconditionFailed     the operator: a gate or hazard check of ours forbids it; the message names the next step
    └── PlanOutdated       the operator: the clusters are not as they were planned for; only a new run plans again
"""

from __future__ import annotations

from typing import ClassVar


class FleetError(Exception):
    """An expected failure, shown to the user as its message, without a stack trace.

    :param message: what failed, on which cluster and resource, the value, and what to do next.
    :param cluster: name of the cluster that answered, if any.
    :param status: HTTP status of the broker's answer, if any.
    """

    CODE: ClassVar[str] = "error"
    """What a program tells it by, in the JSON of a command; it stays when a message is written better."""
    ACTS: ClassVar[str] = "read the message"
    """Who acts, or what to do."""

    def __init__(self, message: str, *, cluster: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.cluster = cluster
        self.status = status


class Unavailable(FleetError):
    """The same call may succeed later; the client has already retried it for its `retry_seconds`."""

    CODE = "unavailable"
    ACTS = "nobody: it was retried, a later call may succeed"


class InvalidRequest(FleetError):
    """The request is invalid; a retry would fail again."""

    CODE = "invalid-request"
    ACTS = "you: correct the request"


class PermissionDenied(FleetError):
    """The broker does not accept our credentials, or our role may not do this."""

    CODE = "permission-denied"
    ACTS = "correct credentials or rights"


class Unauthenticated(PermissionDenied):
    """The broker does not accept our token: it is missing, expired or signed with another key."""

    CODE = "unauthenticated"
    ACTS = "correct the credentials"


class NotAllowed(PermissionDenied):
    """The broker accepts our token, but our role may not do this: the resource is unknown, not absent."""

    CODE = "not-allowed"
    ACTS = "grant the right"


class BrokerCredentials(PermissionDenied):
    """The broker accepts our token, but cannot log in to its own cluster: its `brokerClient…` settings are wrong."""

    CODE = "broker-credentials"
    ACTS = "correct the brokers' own credentials"


class Conflict(FleetError):
    """The state is not what the caller expected: read it again and plan again."""

    CODE = "conflict"
    ACTS = "look again: the state has changed"


class NotFound(FleetError):
    """The named resource does not exist on this cluster."""

    CODE = "not-found"
    ACTS = "you: what it names does not exist"


class PreconditionFailed(FleetError):
    """A gate or hazard check forbids the operation, because it would harm data or clients."""

    CODE = "precondition-failed"
    ACTS = "you: do what it says first"


class ExecutedElsewhere(PreconditionFailed):
    """Another process executes the run: its records are that process's to write."""

    CODE = "executed-elsewhere"
    ACTS = "wait for the other process"


class PlanOutdated(PreconditionFailed):
    """The clusters have changed since the run was planned: only a new run, which plans again, can go on."""

    CODE = "plan-outdated"
    ACTS = "start a new run"
