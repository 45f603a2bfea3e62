"""Acknowledgments on shadow topics, carried to their owners for some time, as a procedure; see
docs/forward_acknowledgments.md."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import Done, Ending, NotYet, Procedure, Session, Skipped, Step, Wait
from pulsar_fleet.settings.read_only import FORWARD_ACKNOWLEDGMENTS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.read_only.forwarding.request import Request
    from pulsar_fleet.read_only.forwarding.results import ForwardingResult

log = logging.getLogger(__name__)

_FORWARD, _KEEP = "forward_acknowledgments", "keep_forwarding"
_END, _LATER = "forwarding-end.json", "forwarding-later.json"
_TAKEN_SECONDS = 600.0
"""A result is taken so long after the end, also by a retry."""
_LEAST_SECONDS = 5.0
"""Of the passes in a triggerer, so that one can be complete."""


def validate(conf: JsonObject) -> None:
    """Refuse names that are not valid, and a position that is accepted of a subscription that is not forwarded."""
    requests_of(conf)
    FORWARD_ACKNOWLEDGMENTS.require_cluster(conf)


def requests_of(conf: JsonObject) -> list[Request]:
    """What is forwarded, for each namespace."""
    from pulsar_fleet.read_only.forwarding.request import Request

    return [Request.of({**conf, "namespace": namespace}) for namespace in conf["namespaces"]]


async def forward_acknowledgments(session: Session) -> Done:
    """Read both cursors of each subscription, send what the owner's lacks, and read it back."""
    from pulsar_fleet.cluster.errors import FleetError, Unavailable
    from pulsar_fleet.read_only.forwarding.forwarder import forward_once, refused_namespace
    from pulsar_fleet.read_only.forwarding.results import together

    results: list[ForwardingResult] = []
    # The next passes begin behind this one.
    _forget(session.run)
    admin = session.clusters["cluster"]
    for request in requests_of(session.conf):
        try:
            results.append(await forward_once(admin, request))
        except Unavailable:
            raise
        except FleetError as error:
            results.append(refused_namespace(admin, request, error))
    result = together(results)
    return Done(result.headline(), result)


async def keep_forwarding(session: Session) -> Done | NotYet | Skipped:
    """Forward again and again for `minutes`, without a worker slot; skipped without them. Cleared, it begins again."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.text import duration
    from pulsar_fleet.read_only.forwarding.results import ForwardingResult

    run, seconds = session.run, float(session.conf["minutes"]) * 60
    if not seconds:
        return Skipped("Acknowledgments are forwarded once: `minutes` is 0.")
    stored, end = run.stored(_LATER), run.stored(_END)
    if end is not None and time.time() > end + _TAKEN_SECONDS:
        # Of an attempt that has ended: this one was cleared.
        _forget(run)
        stored = end = None
    if stored is None and end is None:
        run.artefacts.write_json(run.id, _END, time.time() + seconds)
    if stored is None and (end is None or time.time() < end):
        return NotYet(f"Acknowledgments are forwarded for {duration(seconds)}")
    if stored is None:
        cluster = session.clusters["cluster"].connection.name
        raise PreconditionFailed(
            f"What was forwarded in {duration(seconds)} is not known: the task was ended meanwhile, {cluster} did not "
            "answer, or the log of the triggerer says why. Start a new run: it forwards what is left."
        )
    result = ForwardingResult.from_json(stored)
    return Done(result.headline(), result)


def _forget(run: Run) -> None:
    for name in (_END, _LATER):
        # Most runs make one pass and have none.
        if run.stored(name) is not None:
            run.artefacts.write_json(run.id, name, None)


async def forward_until_end(session: Session) -> str:
    """What a triggerer does meanwhile: one look that lasts until the end.

    Two triggerers may do it at once, and one may die at any time: a pass sends what the owner lacks, and nothing else.
    """
    from pulsar_fleet.read_only.forwarding.results import together

    run = session.run
    (cluster,) = session.connections["cluster"]
    stopped, end = asyncio.Event(), await asyncio.to_thread(run.stored, _END)
    if end is None:
        # Another triggerer has ended it, or the run begins again: the worker reads which.
        return ""
    timer = asyncio.get_running_loop().call_later(max(end - time.time(), _LEAST_SECONDS), stopped.set)
    # Positions are accepted once: a subscription that is created again later has not been.
    requests = requests_of({**session.conf, "accept_positions": []})
    try:
        results = await asyncio.gather(*(_forward_namespace(cluster, request, stopped) for request in requests))
    finally:
        timer.cancel()
    if complete := [result for result in results if result]:
        await asyncio.to_thread(run.artefacts.write_json, run.id, _LATER, together(complete).to_json())
    return ""


async def _forward_namespace(
    cluster: ClusterConnection, request: Request, stopped: asyncio.Event
) -> ForwardingResult | None:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.read_only.forwarding.forwarder import forward_until_stopped, refused_namespace

    async with AdminClient(cluster) as admin:
        try:
            return await forward_until_stopped(admin, request, stopped=stopped, say=lambda line: log.info("%s", line))
        except FleetError as error:
            return refused_namespace(admin, request, error)


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """Positions and holes of both sides; fails if a topic or a position needs an operator."""
    from pulsar_fleet.procedures.runner import result_of
    from pulsar_fleet.read_only.forwarding.results import ForwardingResult
    from pulsar_fleet.report.acknowledgments import forwarding_report, metrics

    first, later = (result_of(run, name, ForwardingResult) for name in (_FORWARD, _KEEP))
    # Without the first pass those of an earlier attempt are no result of this one.
    result = later.after(first) if first and later else first
    report = forwarding_report(result, failed)
    if result is None:
        return Ending(report=report, text=report.markdown(), document={"failed": list(failed)})
    return Ending(
        report=report,
        text=report.markdown(),
        document=result.to_json(),
        problem="\n".join(result.faults()),
        metrics=metrics(result),
    )


FORWARDING = Procedure(
    name="forward_acknowledgments",
    summary="Carry acknowledgments on shadow topics to the owner's subscriptions of the same names.",
    clusters={"cluster": "Cluster that has the topics: admin URL or Airflow connection id."},
    own_settings=FORWARD_ACKNOWLEDGMENTS.declared,
    opening="read_request",
    # Acknowledgments that wait for a slot are messages that an application gets twice.
    urgent=True,
    validate=validate,
    idle=FORWARD_ACKNOWLEDGMENTS.idle_without_namespaces("No namespace is forwarded"),
    metrics="forwarding",
    work=(
        Step(_FORWARD, forward_acknowledgments),
        Step(_KEEP, keep_forwarding, wait=Wait(minutes="", poll_seconds=5.0, look=forward_until_end)),
    ),
    end=end,
)
