"""Forward acknowledgments of shadow topics to their owners: one pass, then more of them without a worker slot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator, Context

from pulsar_fleet.airflow.run import current_run, retry_what_can_heal, run_until_limit
from pulsar_fleet.airflow.triggers.acknowledgments import RESULT, ForwardingTrigger

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.read_only.forwarding.results import ForwardingResult

_FIRST = "forwarding-first-pass.json"


class ForwardAcknowledgmentsOperator(BaseOperator):
    """Make one pass, then defer for `minutes` of the run's settings; returns the reference of the result."""

    @retry_what_can_heal
    def execute(self, context: Context) -> JsonObject:
        """One pass on the worker, so that a cluster that does not answer is retried by Airflow."""
        params, run = dict(context["params"]), current_run(context)
        requests = requests_of(params)
        if not requests:
            raise AirflowSkipException(
                "No namespace is forwarded: name read-only namespaces in PULSAR_FLEET_FORWARD_ACKNOWLEDGMENTS, or in "
                "the form."
            )
        result = run_until_limit(self, _forward(params["cluster"], requests))
        self.log.info("%s", result.headline())
        reference: JsonObject = run.artefacts.write_json(run.id, RESULT, result.to_json()).to_json()
        if params["minutes"]:
            end = time.time() + float(params["minutes"]) * 60
            # Positions are accepted once: a subscription that is created again later has not been.
            later: list[JsonObject] = [{**settings, "accept_positions": []} for settings in requests]
            trigger = ForwardingTrigger(cluster=params["cluster"], requests=later, run_id=run.id, end=end)
            run.artefacts.write_json(run.id, _FIRST, result.to_json())
            self.defer(trigger=trigger, method_name="resume")
        return reference

    @retry_what_can_heal
    def resume(self, context: Context, event: JsonObject) -> JsonObject:
        """Take the trigger's event: add the first pass, or fail with what it says."""
        from pulsar_fleet.cluster.errors import PreconditionFailed
        from pulsar_fleet.ledger.artefacts import Reference
        from pulsar_fleet.read_only.forwarding.results import ForwardingResult

        if "result" not in event:
            raise PreconditionFailed(str(event["message"]))
        run = current_run(context)
        later = ForwardingResult.from_json(run.artefacts.read_json(Reference.from_json(event["result"])))
        result = later.after(ForwardingResult.from_json(run.stored(_FIRST)))
        self.log.info("%s", result.headline())
        document: JsonObject = run.artefacts.write_json(run.id, RESULT, result.to_json()).to_json()
        return document


def requests_of(params: dict[str, Any]) -> list[JsonObject]:
    """The settings of the form, one for each namespace."""
    names = ("topics", "subscriptions", "accept_positions", "create_missing", "poll_seconds")
    shared = {name: params[name] for name in names}
    return [{"namespace": namespace, **shared} for namespace in params["namespaces"]]


async def _forward(cluster: str, requests: list[JsonObject]) -> ForwardingResult:
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.errors import FleetError, Unavailable
    from pulsar_fleet.read_only.forwarding.forwarder import forward_once, refused_namespace
    from pulsar_fleet.read_only.forwarding.request import Request
    from pulsar_fleet.read_only.forwarding.results import together

    results: list[ForwardingResult] = []
    async with AdminClient(cluster_connection(cluster)) as admin:
        for request in map(Request.of, requests):
            try:
                results.append(await forward_once(admin, request))
            except Unavailable:
                raise
            except FleetError as error:
                results.append(refused_namespace(admin, request, error))
    return together(results)
