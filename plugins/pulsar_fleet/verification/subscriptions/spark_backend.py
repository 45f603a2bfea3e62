"""The comparison of subscriptions in Spark: each task compares some topics over HTTP, and few rows come back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace

from pyspark.sql import SparkSession

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.messages.credentials import Side, connection_from_environment
from pulsar_fleet.verification.request import Pair, VerifyRequest
from pulsar_fleet.verification.subscriptions.compare import compare_pairs
from pulsar_fleet.verification.subscriptions.evaluate import assemble
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification, TopicSubscriptions

TOPICS_PER_TASK = 50


def compare_in_spark(session: SparkSession, request: VerifyRequest) -> SubscriptionVerification:
    """Compare all pairs of the request with the tasks of a session; a failed task is done again as a whole."""
    batches = [replace(request, pairs=pairs, problems=()).to_bytes() for pairs in _batches(request)]
    if not batches:
        return assemble(request, ())
    tasks = session.sparkContext.parallelize(batches, len(batches))
    found = [TopicSubscriptions.from_json(json.loads(text)) for text in tasks.flatMap(_compare).collect()]
    return assemble(request, found)


def _batches(request: VerifyRequest) -> list[tuple[Pair, ...]]:
    starts = range(0, len(request.pairs), TOPICS_PER_TASK)
    return [request.pairs[start : start + TOPICS_PER_TASK] for start in starts]


def _compare(content: bytes) -> list[str]:
    """One task: the topics of a part of the request, with the credentials of its worker's environment."""
    request = VerifyRequest.from_bytes(content)
    source, target = (connection_from_environment(side, **asdict(request.address(side))) for side in Side)

    async def compare() -> list[TopicSubscriptions]:
        async with AdminClient(source) as here, AdminClient(target) as there:
            return await compare_pairs(here, there, request)

    return [json.dumps(each.to_json()) for each in asyncio.run(compare())]
