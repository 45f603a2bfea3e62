"""What a broker's refusals mean (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.errors import Conflict, FleetError, Missing, NotAllowed, Transient, Unauthenticated
from pulsar_fleet.reading.wire_frames import ServerError

_BY_CODE: dict[int, tuple[type[FleetError], str]] = {
    ServerError.AUTHENTICATION: (
        Unauthenticated,
        "cannot be read, because our credentials are not accepted",
    ),
    ServerError.AUTHORIZATION: (NotAllowed, "may not be read by this role: grant it consume"),
    ServerError.TOPIC_NOT_FOUND: (Missing, "does not exist"),
    ServerError.TOPIC_TERMINATED: (Conflict, "is closed or was moved"),
}


def refused(code: int, message: str, about: str, *, cluster: str, address: str) -> FleetError:
    """The error for a broker's code and message; what is not known may pass."""
    raised, reason = _BY_CODE.get(code, (Transient, "could not be read"))
    said = " ".join(message.split())[:300]
    return raised(f"{about} {reason} on {cluster} ({address}): {said}.", cluster=cluster)
