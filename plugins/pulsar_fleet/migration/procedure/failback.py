"""A failback in one run: the steps that depend on its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, parse_namespaces
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.artefacts import MOVES
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.failback import steps as failback_steps
from pulsar_fleet.migration.model import Phase, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.lease import held
from pulsar_fleet.migration.procedure.common import Findings, Procedure
from pulsar_fleet.migration.request import FailbackRequest, Request
from pulsar_fleet.migration.waves.steps import begun_namespaces
from pulsar_fleet.preflight.waivers import parse_waivers
from pulsar_fleet.snapshot.tenants import require_namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Failback(Procedure):
    """A failback: blue is reopened, then the namespaces migrate from green to blue."""

    NAME: ClassVar[str] = "fail_back_namespaces"
    REQUEST: ClassVar[type[Request]] = FailbackRequest
    request: FailbackRequest

    @property
    def sides(self) -> Sides:
        """Green comes first."""
        return self.clusters.reversed()

    @classmethod
    def validate(cls, conf: Mapping[str, Any]) -> None:
        """Refuse an invalid setting with `InvalidRequest`, before any call."""
        request = FailbackRequest.of(conf)
        if request.strategy in (Strategy.REPOINT, Strategy.WHOLE_CLUSTER):
            raise InvalidRequest(
                f"A failback has no strategy {request.strategy!r}: the namespaces go back one by one. Set "
                "'redirect', 'replicate_then_switch' or 'auto'."
            )
        parse_waivers(request.waivers)
        parse_namespaces(request.namespaces)

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces of the request; an invalid name raises `InvalidRequest`."""
        return parse_namespaces(self.request.namespaces)

    @property
    def expected(self) -> Expectations:
        """The settings that the gates depend on."""
        minutes = self.request.drain_timeout_minutes
        return Expectations(
            drain_minutes=minutes,
            is_failback=True,
            dag_parsing=self.dag_parsing,
            unload=self.request.unload_terminated_topics,
        )

    @property
    def _begun(self) -> bool:
        """Whether the cut-over of this run has begun; `PreconditionFailed` if it was given up for some namespaces."""
        begun = begun_namespaces(self.run)
        newest = {entry.namespace: entry.phase for entry in self.run.ledger.phases(self.run.id)}
        given_up = [name for name, phase in newest.items() if phase == Phase.ABORTED]
        if begun and given_up:
            raise PreconditionFailed(
                f"This run has cut over {listed(sorted(begun))} and given up {listed(sorted(given_up))}, which "
                f"{self.clusters.blue.name} redirects again. Nothing was changed. Start another failback of these only."
            )
        return bool(begun)

    async def require_namespaces(self) -> None:
        """Refuse a namespace that green does not have."""
        async with self.sides.open() as (green, _blue):
            await require_namespaces(green, self.namespaces)

    async def check_failback(self) -> Findings:
        """Evaluate every check of the failback and every gate; a blocker stops the run. Changes nothing.

        Once the cut-over has begun, nothing is evaluated: the checks would refuse the run's own flags.

        :raises PreconditionFailed: there is a blocker; or this run cut over some namespaces and gave up others.
        """
        if self._begun:
            return ()
        return await failback_steps.check_failback(
            self.clusters,
            self.run,
            self.namespaces,
            self.strategy,
            allow_removal=self.request.allow_removal,
            expected=self.expected,
            waivers=self.waivers,
        )

    async def reopen_blue(self) -> dict[str, JsonObject]:
        """Clear blue's flags and recreate its terminated topics; applications that restart now stay on blue.

        Once the cut-over has begun, blue is open: nothing is done.
        """
        if self._begun:
            return {}
        async with held(self.sides, self.run, self.namespaces):
            return await failback_steps.reopen(self.clusters, self.run, self.namespaces)

    async def check_gates(self) -> tuple[Reference, Findings]:
        """Evaluate every gate again, now that blue is reopened, and choose the strategy of each namespace.

        Once the cut-over has begun, what moves is decided.
        """
        if self._begun and (decided := self.run.artefacts.find(self.run.id, MOVES)):
            return decided, ()
        return await steps.check_gates(
            self.sides, self.run, self.namespaces, self.strategy, expected=self.expected, waivers=self.waivers
        )

    async def restore(self) -> tuple[str, ...] | None:
        """Close blue again for the namespaces that were reopened and not cut over, and restore green's settings."""
        entered = dict.fromkeys(NamespaceName.parse(entry.namespace) for entry in self.run.ledger.phases(self.run.id))
        closed = await failback_steps.abort_failback(self.clusters, self.run, list(entered))
        return (*closed, *(await self._restore_settings(delete_topics=False) or ()))
