"""Compare the messages of two clusters, as a Spark job.

    spark-submit --py-files pulsar_fleet-….zip verify_messages.py --request URI --result URI

The request names topics with frozen bounds; the result holds a verdict per topic and names the messages that differ.
Both are JSON documents in the artefact store. Credentials come from the environment (PULSAR_FLEET_SOURCE_TOKEN_SECRET,
…_TOKEN_FILE, …_TLS_TRUST_FILE, and the same for TARGET). A difference is a result: the exit status is 0. It is 1 when
the comparison could not be carried out, and then there is no result. If the job is killed, the same request again goes
on where it ended: digests of finished ranges are kept beside the result until there is one.
"""

from __future__ import annotations

import logging
import sys

from upath import UPath

from pulsar_fleet.messages.checkpoints import Checkpoints
from pulsar_fleet.verification.job import run_job
from pulsar_fleet.verification.messages.compare import judge
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.spark_backend import InSpark, open_session
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import VerifyRequest

log = logging.getLogger("verify_messages")


def compare(request_uri: str, result_uri: str) -> None:
    """Read the request, compare, write the result; an earlier result is removed first, so that none is ever stale."""
    result = UPath(result_uri)
    result.unlink(missing_ok=True)
    request = VerifyRequest.from_bytes(UPath(request_uri).read_bytes())
    checkpoints = Checkpoints.beside(result_uri, request.identity())
    log.info("%s → %s: %d topics, %d entries to read", request.source.name, request.target.name, *_sizes(request))
    session = open_session("verify-messages")
    try:
        found = judge(request, InSpark(session, checkpoints))
    finally:
        session.stop()
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_bytes(found.to_bytes())
    if found.verdict is not Verdict.INCONCLUSIVE:
        checkpoints.remove()
    log.info("verdict %s\n%s", found.verdict, verification_text(found))


def _sizes(request: VerifyRequest) -> tuple[int, int]:
    return len(request.pairs), request.entries


if __name__ == "__main__":
    run_job(sys.argv[1:], "messages", compare)
