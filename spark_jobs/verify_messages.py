"""Compare the messages of two clusters, as a Spark job.

    spark-submit --py-files pulsar_fleet-….zip verify_messages.py --request URI --result URI

The request has topics with frozen bounds; the result has a verdict for each topic and describes the messages that
differ. Both are JSON documents in the artefact store. Credentials come from the environment
(PULSAR_FLEET_SOURCE_TOKEN_SECRET, …_TOKEN_FILE, …_TLS_TRUST_FILE, and the same for TARGET). A difference is a result:
the exit status is 0. The status is 1 if the comparison could not be carried out; then there is no result. If the job is
killed, the same request continues where it ended: checkpoints next to the result hold the digests of finished ranges.
"""

from __future__ import annotations

import logging
import sys
from functools import partial

from pyspark.sql import SparkSession
from upath import UPath

from pulsar_fleet.messages.checkpoints import Checkpoints
from pulsar_fleet.verification.job import run_job
from pulsar_fleet.verification.messages.compare import judge
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.spark_backend import SparkBackend, open_session
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import VerifyRequest

log = logging.getLogger("verify_messages")


def answer(session: SparkSession, content: bytes, result: UPath) -> str:
    """Compare the messages and write the verdicts; then the checkpoints are no longer needed."""
    request = VerifyRequest.from_bytes(content)
    names, entries = (request.source.name, request.target.name), request.entries
    log.info("%s → %s: %d topics, %d entries to read", *names, len(request.pairs), entries)
    checkpoints = Checkpoints.next_to(str(result), request.identity())
    verification = judge(request, SparkBackend(session, checkpoints))
    result.write_bytes(verification.to_bytes())
    if verification.verdict is not Verdict.INCONCLUSIVE:
        checkpoints.remove()
    return f"verdict {verification.verdict}\n{verification_text(verification)}"


if __name__ == "__main__":
    run_job(sys.argv[1:], "messages", partial(open_session, "verify-messages"), answer)
