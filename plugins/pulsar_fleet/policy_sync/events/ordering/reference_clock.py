"""The one clock by which a fleet orders its edits: that of the brokers of its first cluster (client).

The clock of the host on which a follower runs has no part in it: the follower measures by how much the brokers' clock
is ahead of its own, and between two measurements it counts by a clock that nobody sets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew, measure_clock_skew, measure_peer_clock_skew
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.redaction import without_user_info
from pulsar_fleet.policy_sync.events.versions import Bounds

log = logging.getLogger(__name__)

MEASURED_SECONDS = 60.0
"""How long a measurement is used."""
_NOTICEABLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceClock:
    """The reference clock as one process reads it for one cluster.

    :param cluster: whose brokers' clock it is.
    :param host: by how much it is ahead of the clock of this host.
    :param brokers: by how much it is ahead of the clock of the followed cluster's own brokers; None if that is unknown,
        because the brokers of `cluster` cannot be reached from here: then `host` is that of the own brokers' clock.
    :param allowed: seconds in addition to what was measured, for clocks that jump.
    """

    cluster: str
    host: ClockSkew
    brokers: ClockSkew | None
    allowed: float
    measured_at: float = field(default_factory=time.time)
    counted_from: float = field(default_factory=time.monotonic)

    @property
    def uncertainty(self) -> int | None:
        """Of `now`, in ms; None if the brokers of two clusters cannot be compared, so that no bound is known."""
        return None if self.brokers is None else _milliseconds(self.host.uncertainty + self.allowed)

    @property
    def is_recent(self) -> bool:
        """Whether it was measured within the last minute."""
        return time.monotonic() - self.counted_from < MEASURED_SECONDS

    def differs(self, other: Self) -> bool:
        """Whether it is another clock, or one of the differences changed by more than 5 s."""
        if self.cluster != other.cluster or self.brokers is None or other.brokers is None:
            return self.cluster != other.cluster or self.brokers != other.brokers
        moved = (self.host.ahead - other.host.ahead, self.brokers.ahead - other.brokers.ahead)
        return max(map(abs, moved)) > _NOTICEABLE_SECONDS

    def now(self) -> int:
        """The time in ms since 1970."""
        passed = time.monotonic() - self.counted_from
        return _milliseconds(self.measured_at + passed + self.host.ahead)

    def written(self, begin: float, end: float) -> tuple[int, Bounds | None]:
        """When something was written, and the bounds of this, by two times of the own brokers in seconds since 1970."""
        if self.brokers is None:
            return _milliseconds(end), None
        open_ = self.brokers.uncertainty + self.allowed
        earliest, latest = begin + self.brokers.ahead, end + self.brokers.ahead
        return _milliseconds((earliest + latest) / 2), (_milliseconds(earliest - open_), _milliseconds(latest + open_))

    def text(self, own: str) -> str:
        """What an operator should know about it."""
        if self.brokers is None:
            return (
                f"{own}: the brokers of {self.cluster} cannot be reached from here to compare their clock, so edits "
                f"are ordered by the clock of {own}, and their order to edits elsewhere is uncertain"
            )
        return (
            f"{own}: edits are ordered by the clock of {self.cluster}, which is {self.host.ahead:+.1f} s ahead of this "
            f"host's and {self.brokers.ahead:+.1f} s ahead of {own}'s, ± {self.host.uncertainty + self.allowed:.1f} s"
        )


@dataclass(kw_only=True)
class ClockReader:
    """Reads the reference clock for one cluster; a measurement is used for a minute.

    :param clusters: the clusters of this process, by name.
    :param allowed: seconds in addition to what is measured.
    """

    own: str
    admin: AdminClient
    clusters: Mapping[str, AdminClient]
    allowed: float
    last: ReferenceClock | None = None

    async def read(self, fleet: Collection[str]) -> ReferenceClock:
        """The clock of the first cluster of the fleet; if that does not answer now, its last measurement.

        :raises Unavailable: the own cluster does not answer.
        """
        reference = min(fleet)
        if self.last is None or self.last.cluster != reference or not self.last.is_recent:
            self.last = await self._measure(reference)
        return self.last

    async def _measure(self, reference: str) -> ReferenceClock:
        own = await measure_clock_skew(self.admin)
        if reference == self.own:
            return ReferenceClock(cluster=reference, host=own, brokers=ClockSkew(0.0, 0.0), allowed=self.allowed)
        skew = await self._of_peer(reference)
        if skew is not None:
            brokers = ClockSkew(round(skew.ahead - own.ahead, 3), round(skew.uncertainty + own.uncertainty, 3))
            return ReferenceClock(cluster=reference, host=skew, brokers=brokers, allowed=self.allowed)
        if self.last is not None and self.last.cluster == reference and (brokers_then := self.last.brokers):
            host = ClockSkew(round(own.ahead + brokers_then.ahead, 3), own.uncertainty + brokers_then.uncertainty)
            return ReferenceClock(cluster=reference, host=host, brokers=brokers_then, allowed=self.allowed)
        return ReferenceClock(cluster=reference, host=own, brokers=None, allowed=self.allowed)

    async def _of_peer(self, name: str) -> ClockSkew | None:
        """By our own connection to the cluster, else by the addresses that the own cluster has of it."""
        try:
            if admin := self.clusters.get(name):
                return await measure_clock_skew(admin)
            data = without_user_info(await self.admin.cluster_data(name) or {})
            urls = [str(data[key]) for key in ("serviceUrlTls", "serviceUrl") if data.get(key)]
            return await measure_peer_clock_skew(self.admin.connection, urls[0].partition(",")[0]) if urls else None
        except FleetError as error:
            log.info("%s: the clock of %s is unknown: %s", self.own, name, error)
            return None


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
