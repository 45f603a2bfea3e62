"""Compare the subscriptions of two clusters, as a Spark job.

    spark-submit --py-files pulsar_fleet-….zip verify_subscriptions.py --request URI --result URI

The request is that of verify_messages.py: topics with frozen bounds. The result has a verdict for each subscription and
describes the entries that would be redelivered or skipped. Both are JSON documents in the artefact store. Credentials
come from the environment (PULSAR_FLEET_SOURCE_TOKEN_SECRET, …_TOKEN_FILE, …_TLS_TRUST_FILE, and the same for TARGET).
Executors need httpx-aiohttp and tenacity too. A difference is a result: the exit status is 0. The
status is 1 if the comparison could not be carried out; then there is no result.
"""

from __future__ import annotations

import logging
import sys
from functools import partial

from pyspark.sql import SparkSession
from upath import UPath

from pulsar_fleet.verification.job import run_job
from pulsar_fleet.verification.messages.spark_backend import open_session
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.spark_backend import compare_in_spark

log = logging.getLogger("verify_subscriptions")


def answer(session: SparkSession, content: bytes, result: UPath) -> str:
    """Compare the subscriptions and write the verdicts."""
    request = VerifyRequest.from_bytes(content)
    log.info("%s → %s: subscriptions of %d topics", request.source.name, request.target.name, len(request.pairs))
    verification = compare_in_spark(session, request)
    result.write_bytes(verification.to_bytes())
    return f"verdict {verification.verdict}\n{subscription_text(verification)}"


if __name__ == "__main__":
    run_job(sys.argv[1:], "subscriptions", partial(open_session, "verify-subscriptions"), answer)
