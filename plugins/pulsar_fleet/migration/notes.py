"""What a switch of one namespace must know again when it dies on the way, kept with the run."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.migration.clients import Roster
from pulsar_fleet.migration.placed import PlacedTopics, known_placed, remember_placed
from pulsar_fleet.migration.rosters import remember_roster
from pulsar_fleet.records.run import Run


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of one namespace; written again, the newer ones count."""

    run: Run
    namespace: str

    def clients(self, roster: Roster) -> None:
        """Keep who was connected, as long as nobody can have left."""
        remember_roster(self.run, self.namespace, roster)

    def places(self, placed: PlacedTopics) -> None:
        """Keep where the subscriptions were placed, before the flag is set."""
        remember_placed(self.run, self.namespace, placed)

    def known_places(self) -> PlacedTopics:
        """Where this or an earlier try placed them; nothing where nothing is copied."""
        return known_placed(self.run, self.namespace)
