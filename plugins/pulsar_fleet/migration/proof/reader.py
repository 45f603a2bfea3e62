"""Who reads the messages of a proof: this process, or above a size a job; an interrupted proof is continued."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.ledger.artefacts import read_job_result
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.proof.baseline import ProofBaseline
from pulsar_fleet.migration.request import SPARK_ABOVE_ENTRIES
from pulsar_fleet.verification.messages.recheck import recheck
from pulsar_fleet.verification.messages.verdict import Verification
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import REQUEST, store_request, verify_in_process

log = logging.getLogger(__name__)

Job = Callable[[str, str], Awaitable[None]]
"""Takes the URIs of a request and of its result, compares the messages and writes the result."""

_UNFINISHED = "{}/unfinished.json"


@dataclass(frozen=True, slots=True)
class Unfinished(Document):
    """A proof that was begun and has no verdict yet.

    Another attempt compares the same entries between the same bounds, so that it reads no finished range again.

    :param namespaces: what it compares.
    :param baselines: namespace → the state of both clusters before the bounds were frozen.
    :param request_hash: SHA-256 of the verification request, which is stored beside it.
    """

    SCHEMA_VERSION = 1

    namespaces: tuple[str, ...]
    baselines: Mapping[str, ProofBaseline]
    request_hash: str

    @classmethod
    def read(cls, run: Run, folder: str, namespaces: Sequence[str]) -> tuple[Self, VerifyRequest] | None:
        """The unfinished proof of a run; None without one, or if it is of other namespaces or of another release."""
        stored = run.artefacts.find(run.id, f"{folder}/{REQUEST}")
        try:
            document = run.stored(_UNFINISHED.format(folder))
            unfinished = cls.from_json(document) if document else None
            if not (unfinished and stored) or unfinished.namespaces != tuple(namespaces):
                return None
            if stored.sha256 != unfinished.request_hash:
                return None
            request = VerifyRequest.from_bytes(run.artefacts.read(stored))
        except FleetError as error:
            log.info("the proof that was begun is not continued: %s", error)
            return None
        log.info("the proof that was begun is continued: finished ranges are not read again")
        return unfinished, request


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofReader:
    """Who reads the messages of a proof, and how fast.

    :param job: reads a large proof; without one this process does.
    :param job_above: the entries of both clusters above which a proof is large.
    :param max_bytes_per_second: the limit for each broker; None means no limit.
    """

    job: Job | None = None
    job_above: int = SPARK_ABOVE_ENTRIES
    max_bytes_per_second: int | None = None

    async def compare(
        self,
        run: Run,
        blue: AdminClient,
        green: AdminClient,
        request: VerifyRequest,
        folder: str,
        baselines: Mapping[str, ProofBaseline],
    ) -> Verification:
        """Compare what the request bounds. What a large proof compares is stored first: another attempt continues it.

        :param folder: of the run's artefacts, for the request, the result and the checkpoints.
        :param baselines: namespace → the state of both clusters before the bounds were frozen.
        :raises NotFound: the job ended without a result.
        """
        if request.entries <= self.job_above:
            return await verify_in_process(blue, green, request)
        uri, result = store_request(run, request, folder)
        unfinished = _UNFINISHED.format(folder)
        begun = Unfinished(request.namespaces, baselines, hashlib.sha256(request.to_bytes()).hexdigest())
        run.artefacts.write_json(run.id, unfinished, begun.to_json())
        if self.job:
            log.info("%d entries are compared by a job", request.entries)
            await self.job(uri, result)
            compared = Verification.from_bytes(read_job_result(result, "verification job"))
            verification = await recheck(blue, green, request, compared)
        else:
            verification = await verify_in_process(blue, green, request, result_uri=result)
        run.artefacts.write_json(run.id, unfinished, None)
        return verification
