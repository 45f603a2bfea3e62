"""Compare stored snapshots of two clusters, as a Spark job.

    spark-submit --py-files pulsar_fleet-….zip compare_snapshots.py --request URI --result URI

The request names two snapshots in the artefact store and the result says whether the target holds all that the source
holds, how much of each kind differs, and the first differences; both are JSON documents. A request of the kind "fleet"
names a snapshot of each cluster of a fleet, and its result every resource that they do not hold alike. Several pairs
of --request and --result share one session. No cluster is asked anything, so no credentials are needed. A difference
is a result: the exit status is 0. It is 1 when a comparison could not be carried out, and then there is no result.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from pyspark.sql import SparkSession
from upath import UPath

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.comparison import comparison_text
from pulsar_fleet.policy_sync.merge.divergence import ApartRequest, asks_for_apart, find_apart
from pulsar_fleet.verification.snapshots.compare import CompareRequest, compare_snapshots
from pulsar_fleet.verification.snapshots.spark_backend import in_tasks, spread_over

log = logging.getLogger("compare_snapshots")


def main(arguments: list[str]) -> None:
    """Run the job; a failure of its own ends it with status 1."""
    parser = argparse.ArgumentParser(description="Compare stored snapshots of two Pulsar clusters.")
    parser.add_argument("--request", required=True, action="append", help="URI of a request document")
    parser.add_argument("--result", required=True, action="append", help="URI under which its result is written")
    given = parser.parse_args(arguments)
    if len(given.request) != len(given.result):
        parser.error("each --request needs a --result")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    session = SparkSession.builder.appName("compare-snapshots").getOrCreate()
    try:
        for request, result in zip(given.request, given.result, strict=True):
            answer(request, result, session)
    except (FleetError, OSError) as error:
        raise SystemExit(f"The comparison was not carried out: {error}") from error
    finally:
        session.stop()


def answer(request_uri: str, result_uri: str, session: SparkSession) -> None:
    """Read the request, compare, write the result; an earlier result is removed first, so that none is ever stale."""
    result = UPath(result_uri)
    result.unlink(missing_ok=True)
    content = UPath(request_uri).read_bytes()
    found, text = _of_fleet(content, session) if asks_for_apart(content) else _of_pair(content, session)
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_bytes(json.dumps(found, indent=1).encode())
    log.info("%s", text)


def _of_pair(content: bytes, session: SparkSession) -> tuple[JsonObject, str]:
    found = compare_snapshots(CompareRequest.from_bytes(content), spread_over(session))
    return found.to_json(), comparison_text(found)


def _of_fleet(content: bytes, session: SparkSession) -> tuple[JsonObject, str]:
    found = find_apart(ApartRequest.from_bytes(content), lambda batches, work: in_tasks(session, batches, work))
    return found, f"{len(found['apart']):,} resources are not alike in {found['compared']:,} namespaces"


if __name__ == "__main__":
    main(sys.argv[1:])
