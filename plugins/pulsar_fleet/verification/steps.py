"""The steps of a verification: freeze, read (here or in a Spark job), check again, record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from upath import UPath

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side, digest_key
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.bounds.freeze import EarlierProofs, Freezer
from pulsar_fleet.verification.bounds.shadow_topics import ReadFrom
from pulsar_fleet.verification.coverage import Coverage, Mode
from pulsar_fleet.verification.messages.incremental import earlier_proofs
from pulsar_fleet.verification.messages.recheck import recheck
from pulsar_fleet.verification.messages.report import namespace_summary, verdict_tables
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import Mapping, Progress, VerifyRequest

FOLDER = "verification"
"""Where a run keeps its documents, unless it compares in several parts."""

REQUEST = "request.json"
RESULT = "result.json"
VERDICT = "verdict.json"


async def freeze_bounds(
    source: AdminClient,
    target: AdminClient,
    namespaces: Sequence[NamespaceName],
    *,
    mapping: Mapping = Mapping.AUTO,
    coverage: Coverage | None = None,
    run: Run | None = None,
    examples: int = 20,
    engine: EngineChoice = EngineChoice.AUTO,
    keyed: bool = False,
    read_from: ReadFrom = ReadFrom.SERVING,
    max_bytes_per_second: int | None = None,
) -> VerifyRequest:
    """Decide what is compared: the source's end now, and on the target what came from there.

    Waits for replicators to pass that end. Loads every topic of the namespaces; two to twenty-five calls a topic.

    :param run: whose ledger has the proofs that mode `incremental` continues; without it the mode is `InvalidRequest`.
    :param engine: who reads, where the mode leaves a choice.
    :param keyed: hash messages with BLAKE2b and the key in the environment, which `InvalidRequest` misses.
    :param read_from: where the source's messages are read.
    """
    if keyed:
        digest_key()
    earlier: EarlierProofs | None = None
    if coverage and coverage.mode is Mode.INCREMENTAL:
        if run is None:
            raise InvalidRequest("Mode 'incremental' needs the ledger, which holds the proofs that it continues.")
        earlier = None if keyed else partial(earlier_proofs, run.ledger, run.artefacts)
    freezer = Freezer(
        source,
        target,
        mapping=mapping,
        coverage=coverage,
        earlier=earlier,
        engine=engine,
        keyed=keyed,
        read_from=read_from,
    )
    request = await freezer.freeze(namespaces)
    return replace(request, examples=examples, max_bytes_per_second=max_bytes_per_second)


async def verify_in_process(
    source: AdminClient,
    target: AdminClient,
    request: VerifyRequest,
    *,
    result_uri: str | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Read and compare here: for namespaces of up to about a million messages.

    :param result_uri: beside it, finished ranges are kept: the same request again, after this process was killed, does
        not read them again. Without it none are kept.
    :param progress: takes, in another thread, how many entries were read, and of how many.
    """
    found = await asyncio.to_thread(_judge_here, source, target, request, result_uri, progress)
    return await recheck(source, target, request, found)


def hand_over(run: Run, request: VerifyRequest, folder: str = FOLDER) -> tuple[str, str]:
    """Store the request for a Spark job; returns the two URIs that the job wants: its request and its result."""
    reference = run.artefacts.write(run.id, f"{folder}/{REQUEST}", request.to_bytes())
    return reference.uri, str(run.artefacts.folder(run.id) / folder / RESULT)


async def conclude(
    run: Run,
    source: AdminClient,
    target: AdminClient,
    request: VerifyRequest,
    result_uri: str,
    folder: str = FOLDER,
) -> Verification:
    """Take the result that a Spark job left, check that it still holds, and record it. `NotFound` if there is none."""
    try:
        content = UPath(result_uri).read_bytes()
    except OSError as error:
        raise NotFound(f"The verification job left no result at {result_uri}: {error}. See its log.") from error
    found = await recheck(source, target, request, Verification.from_bytes(content))
    record(run, found, folder)
    return found


def record(run: Run, found: Verification, folder: str = FOLDER) -> Reference:
    """Keep the verdicts: as a document and as tables in the artefacts, one line per namespace in the ledger.

    Again replaces them.
    """
    document = run.artefacts.write(run.id, f"{folder}/{VERDICT}", found.to_bytes())
    for name, content in verdict_tables(found).items():
        run.artefacts.write(run.id, f"{folder}/{name}", content)
    for each in found.namespaces:
        run.ledger.record_verdict(
            run.id,
            each.namespace,
            verdict=each.verdict,
            messages=each.messages,
            summary=namespace_summary(each, found.restriction),
            artefact=document.to_json(),
        )
    return document


def _judge_here(
    source: AdminClient,
    target: AdminClient,
    request: VerifyRequest,
    result_uri: str | None,
    progress: Progress | None,
) -> Verification:
    # Loads the pulsar client and numpy, which nothing that only plans needs.
    from pulsar_fleet.messages.checkpoints import Checkpoints
    from pulsar_fleet.messages.engines.engines import Engines
    from pulsar_fleet.verification.messages.compare import judge
    from pulsar_fleet.verification.messages.local_backend import InProcess

    checkpoints = Checkpoints.beside(result_uri, request.identity()) if result_uri else None
    with Engines(source.connection) as here, Engines(target.connection) as there:
        found = judge(request, InProcess({Side.SOURCE: here, Side.TARGET: there}, checkpoints, progress))
    if checkpoints and found.verdict is not Verdict.INCONCLUSIVE:
        checkpoints.remove()
    return found
