"""Which run moves a namespace, and which settings of the brokers are overridden for which runs (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import PreconditionFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Document):
    """A run's right to change a namespace.

    :param run: id of the run.
    :param started: when the run began; two ledgers may have runs of one id.
    :param process: `host:pid` of the only process that executes the run; empty where any worker may.
    :param expires: seconds since the epoch; from then on another run may take the namespace.
    """

    run: str
    started: str
    process: str = ""
    expires: float

    def is_of_same_run(self, other: Lease) -> bool:
        """Whether both are of one run of one ledger."""
        return (self.run, self.started) == (other.run, other.started)

    def until(self) -> str:
        """When it expires, as text."""
        return f"{datetime.fromtimestamp(self.expires, UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOverrides(Document):
    """Overridden dynamic settings of the brokers.

    :param dynamic: setting → its override before, None where there was none (it is then removed, not set).
    :param effective: broker → setting → its effective value before; each broker has its own configuration file.
    :param runs: ids of the runs for which they are overridden; the last one restores them.
    """

    dynamic: Mapping[str, str | None]
    effective: Mapping[str, Mapping[str, str]]
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRuns(Document):
    """What runs have recorded on a cluster.

    :param leases: namespace → its lease; one that has expired was left by a run that died.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "use the release that wrote it"

    leases: Mapping[str, Lease] = field(default_factory=dict)
    brokers: BrokerOverrides | None = None

    def with_leases(self, names: Collection[str], lease: Lease, *, cluster: str, now: float) -> Self:
        """With leases of these namespaces, taken or renewed; expired leases of other runs are replaced.

        :raises PreconditionFailed: another run has one of them.
        """
        for name in names:
            current = self.leases.get(name)
            if current and current.expires > now and not current.is_of_same_run(lease):
                raise PreconditionFailed(
                    f"{name} on {cluster} is being changed by the run {current.run!r}, which began {current.started}: "
                    f"its lease ends {current.until()} and is renewed while it works. Nothing was changed. Wait until "
                    f"that run has ended. If it died, wait until then and run again.",
                    cluster=cluster,
                )
        return replace(self, leases={**self.leases, **dict.fromkeys(names, lease)})

    def without_run(self, lease: Lease, names: Collection[str] | None = None) -> Self:
        """Without the leases of a run, of these namespaces or of all."""
        left = self.leases if names is None else names
        kept = {
            name: other for name, other in self.leases.items() if name not in left or not other.is_of_same_run(lease)
        }
        return replace(self, leases=kept)

    def live_runs(self, now: float) -> frozenset[str]:
        """Ids of the runs that have a lease."""
        return frozenset(lease.run for lease in self.leases.values() if lease.expires > now)

    def freezing(self, now: float, *, besides: str) -> tuple[str, ...]:
        """Ids of other live runs for which settings of the brokers are overridden."""
        live = self.live_runs(now) - {besides}
        return tuple(run for run in (self.brokers.runs if self.brokers else ()) if run in live)
