"""The comparison of subscriptions in Spark: each task compares some topics over HTTP and returns few rows."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

from pyspark.sql import SparkSession

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.messages.credentials import Side, connection_from_environment
from pulsar_fleet.verification.request import Pair, VerifyRequest
from pulsar_fleet.verification.subscriptions.compare import compare_pairs
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification, TopicSubscriptions, assemble

TOPICS_PER_TASK = 50


def compare_in_spark(session: SparkSession, request: VerifyRequest) -> SubscriptionVerification:
    """Compare all pairs of the request in tasks of a session; Spark repeats a failed task."""
    batches = [replace(request, pairs=pairs, problems=()) for pairs in _batches(request)]
    if not batches:
        return assemble(request, ())
    tasks = session.sparkContext.parallelize(batches, len(batches))
    return assemble(request, tasks.flatMap(_compare).collect())


def _batches(request: VerifyRequest) -> list[tuple[Pair, ...]]:
    pairs = request.logs
    return [pairs[start : start + TOPICS_PER_TASK] for start in range(0, len(pairs), TOPICS_PER_TASK)]


def _compare(request: VerifyRequest) -> list[TopicSubscriptions]:
    """One task: a part of the request's topics, with the credentials in the environment of its worker."""
    source, target = (connection_from_environment(side, **asdict(request.address(side))) for side in Side)

    async def compare() -> list[TopicSubscriptions]:
        async with AdminClient(source) as source_admin, AdminClient(target) as target_admin:
            return await compare_pairs(source_admin, target_admin, request)

    return asyncio.run(compare())
