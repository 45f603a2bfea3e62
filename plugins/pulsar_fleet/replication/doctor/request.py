"""The settings of a run of the doctor (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import did_you_mean
from pulsar_fleet.replication.doctor.causes.catalogue import CATALOGUE

READING_SECONDS = 3.0
BEHIND_SECONDS = 60.0
CONNECT_SECONDS = 75.0
MOST_DETAILS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The settings of a run.

    :param receive_only: names of clusters that are meant only to receive.
    :param remedies: ids of the diagnoses whose remedy the run may execute.
    :param reading_seconds: time between the two readings of a replicator that is not idle.
    :param connect_seconds: for how long a replicator that does not work without a cause is read again.
    :param behind_seconds: a replicator that needs longer for its backlog is behind.
    :param most_details: of so many replicators that do not work, the topic on the target is read too.
    :param moved: groups of applications that can return: what they write must be replicated back until then.
    """

    selection: Selection = field(default_factory=Selection)
    receive_only: frozenset[str] = frozenset()
    remedies: frozenset[str] = frozenset()
    reading_seconds: float = READING_SECONDS
    behind_seconds: float = BEHIND_SECONDS
    connect_seconds: float = CONNECT_SECONDS
    most_details: int = MOST_DETAILS
    moved: tuple[Followed, ...] = ()

    def __post_init__(self) -> None:
        for id_ in sorted(self.remedies):
            if id_ not in CATALOGUE:
                hint = did_you_mean(id_, CATALOGUE, "see docs/watch_replication.md.")
                raise InvalidRequest(f"There is no diagnosis {id_!r}; {hint}")
            if not CATALOGUE[id_].automatic:
                raise InvalidRequest(
                    f"The remedy of {id_!r} is for a person: it may lose messages or their order, or it depends on "
                    "what is meant. The doctor prints what to do."
                )

    @classmethod
    def of(cls, params: Mapping[str, Json]) -> Self:
        """Read the settings of a run; an invalid one is `InvalidRequest`."""
        return cls(
            selection=Selection.parse(params["selection"]),
            receive_only=frozenset(params["receive_only"]),
            remedies=frozenset(params["remedies"]),
            reading_seconds=float(params.get("reading_seconds", READING_SECONDS)),
            behind_seconds=float(params.get("behind_seconds", BEHIND_SECONDS)),
            connect_seconds=float(params.get("connect_seconds", CONNECT_SECONDS)),
        )
