"""What each client does when it is redirected, by the version string in the broker's stats (pure).

Evidence: flips of 75 clients between two real 4.2.4 clusters. "redirect" is `CommandTopicMigrated` (PIP-188).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulsar_fleet.change.findings import Severity


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What to expect of a client: `severity` None means that it follows cleanly."""

    severity: Severity | None
    consequence: str
    remedy: str


_FOLLOWS = Behaviour(None, "follows the redirect", "nothing to do")
_NEVER = Behaviour(
    Severity.BLOCKER,
    "never follows a redirect: its producers and consumers stop for good, without an error in the application.",
    "upgrade this application, or stop it for the switch and start it against green.",
)
_CPP = Behaviour(
    Severity.WARNING,
    "C++ and Python clients up to 4.2.0 can dead-lock when they reconnect during a redirect; "
    "the switch is made quiet to avoid it. Their readers may stall.",
    "plan a restart of these applications; the run tells which did not arrive.",
)
_GO = Behaviour(
    Severity.WARNING,
    "Go clients up to 0.19 are silent for one operation time-out, write their pending queue twice, "
    "and their consumers may need a restart.",
    "switch deduplication on for green's namespace, and plan a restart of these applications.",
)
_UNKNOWN = Behaviour(
    Severity.WARNING,
    "this client's version is not known to follow a redirect.",
    "find out what it is; if in doubt, restart it against green after the switch.",
)
_OLD_JAVA = Behaviour(
    Severity.WARNING,
    "Java 3.0 and 3.1 clients fail on a redirect without a TLS URL; the switch stores one for them.",
    "nothing to do; the run tells which did not arrive.",
)


def behaviour(version: str) -> Behaviour:
    """What a client with this `clientVersion` does at the switch."""
    java = re.match(r"^Pulsar-Java-v(\d+)\.(\d+)", version)
    if java:
        return _java(int(java[1]), int(java[2]))
    if version.startswith("Pulsar-CPP"):
        return _CPP
    if version.startswith("Pulsar-Go"):
        return _GO
    # A bare x.y.z is a Java client before 3.0.
    return _NEVER if re.match(r"^\d+\.\d+", version) else _UNKNOWN


def _java(major: int, minor: int) -> Behaviour:
    if major < 3:
        return _NEVER
    return _OLD_JAVA if (major, minor) < (3, 2) else _FOLLOWS
