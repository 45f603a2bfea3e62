"""Every known defect of brokers, and those of one version (pure).

`docs/known_defects.md` has this table. Sources: the release notes of 4.0.9 to 4.0.14, 4.2.1 to 4.2.5 and 5.0.0, and the
threads of the changes. A patch of a line is named only where these name it.
"""

from __future__ import annotations

from collections.abc import Collection

from pulsar_fleet.cluster.defects.brokers import BROKER_DEFECTS
from pulsar_fleet.cluster.defects.model import BrokerDefect, line_of
from pulsar_fleet.cluster.defects.replicators import REPLICATOR_DEFECTS
from pulsar_fleet.cluster.defects.topics import TOPIC_DEFECTS

DEFECTS: tuple[BrokerDefect, ...] = (*TOPIC_DEFECTS, *REPLICATOR_DEFECTS, *BROKER_DEFECTS)
"""Those of topics and cursors first, then of replicators, then of brokers and their admin API."""

LINES: tuple[str, ...] = ("4.0", "4.2", "5.0")
"""The lines of which the release notes were read."""


def defects_of(version: str) -> tuple[BrokerDefect, ...] | None:
    """The defects that brokers of a version are known to have; None for a line of which nothing was read."""
    return tuple(defect for defect in DEFECTS if defect.has(version)) if line_of(version) in LINES else None


def defects_text(sign: str, versions: Collection[str]) -> str:
    """What is known of brokers of these versions that show a sign, as a sentence; empty if nothing is.

    :param sign: an incident of a drain or a diagnosis of a replicator.
    """
    explaining = [defect for defect in DEFECTS if sign in defect.signs and any(map(defect.has, versions))]
    if not explaining:
        return ""
    having = sorted({version for version in versions for defect in explaining if defect.has(version)})
    names = ", ".join(defect.reference for defect in explaining)
    return f"Brokers of {', '.join(having)} are known for this: {names}."
