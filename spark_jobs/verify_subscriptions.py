"""Compare the subscriptions of two clusters, as a Spark job.

    spark-submit --py-files pulsar_fleet-….zip verify_subscriptions.py --request URI --result URI

The request is that of verify_messages.py: topics with frozen bounds. The result holds a verdict per subscription and
names the entries that would be redelivered or skipped. Both are JSON documents in the artefact store. Credentials come
from the environment (PULSAR_FLEET_SOURCE_TOKEN_SECRET, …_TOKEN_FILE, …_TLS_TRUST_FILE, and the same for TARGET).
Executors need httpx-aiohttp and tenacity besides pulsar-client. A difference is a result: the exit status is 0. It is 1
when the comparison could not be carried out, and then there is no result.
"""

from __future__ import annotations

import logging
import sys

from upath import UPath

from pulsar_fleet.verification.job import run_job
from pulsar_fleet.verification.messages.spark_backend import open_session
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.spark_backend import compare_in_spark

log = logging.getLogger("verify_subscriptions")


def compare(request_uri: str, result_uri: str) -> None:
    """Read the request, compare, write the result; an earlier result is removed first, so that none is ever stale."""
    result = UPath(result_uri)
    result.unlink(missing_ok=True)
    request = VerifyRequest.from_bytes(UPath(request_uri).read_bytes())
    log.info("%s → %s: subscriptions of %d topics", request.source.name, request.target.name, len(request.pairs))
    session = open_session("verify-subscriptions")
    try:
        found = compare_in_spark(session, request)
    finally:
        session.stop()
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_bytes(found.to_bytes())
    log.info("verdict %s\n%s", found.verdict, subscription_text(found))


if __name__ == "__main__":
    run_job(sys.argv[1:], "subscriptions", compare)
