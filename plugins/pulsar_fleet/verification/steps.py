"""The steps of a verification: freeze the bounds, read and compare (here or in a Spark job), recheck, record."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Reference, read_job_result
from pulsar_fleet.ledger.cluster_notes import NoteKind, write_note
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side, digest_key
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice, ReadFrom
from pulsar_fleet.verification.bounds.freeze import EarlierProofs, Freezer
from pulsar_fleet.verification.coverage import Coverage, Mode
from pulsar_fleet.verification.messages.incremental import earlier_proofs
from pulsar_fleet.verification.messages.recheck import recheck
from pulsar_fleet.verification.messages.report import namespace_summary, verdict_tables
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import FOLDER, EntryMapping, Order, Progress, VerifyRequest

REQUEST = "request.json"
RESULT = "result.json"
VERDICT = "verdict.json"


async def freeze_bounds(
    source: AdminClient,
    target: AdminClient,
    namespaces: Sequence[NamespaceName],
    *,
    mapping: EntryMapping = EntryMapping.AUTO,
    coverage: Coverage | None = None,
    run: Run | None = None,
    continues: EarlierProofs | None = None,
    examples: int = 20,
    engine: EngineChoice = EngineChoice.AUTO,
    keyed: bool = False,
    read_from: ReadFrom = ReadFrom.SERVING,
    max_bytes_per_second: int | None = None,
    order: Order = Order.PRODUCER_AND_KEY,
    topics: Collection[TopicName] = (),
) -> VerifyRequest:
    """Freeze what is compared: the source's entries up to its current end, and their copies on the target.

    Waits for replicators to pass that end. **Loads every topic of the namespaces**; 2 to 25 calls for each topic.

    :param run: its ledger has the proofs that mode `incremental` continues; without it that mode is `InvalidRequest`.
    :param continues: the proofs to continue, instead of those in the ledger and in any mode but a restricted one.
    :param engine: the engine that reads, if the mode allows a choice.
    :param keyed: hash messages with BLAKE2b and the key in the environment; `InvalidRequest` if the key is not set.
    :param read_from: where the source's messages are read.
    :param order: the order of messages that a copy has to keep.
    :param topics: of a namespace with one of them, only these.
    """
    if keyed:
        digest_key()
    earlier = continues
    if continues:
        coverage = Coverage(mode=Mode.INCREMENTAL)
    elif coverage and coverage.mode is Mode.INCREMENTAL:
        if run is None:
            raise InvalidRequest("Mode 'incremental' needs a ledger with the earlier proofs; use mode 'full'.")
        earlier = None if keyed else partial(earlier_proofs, run.ledger, run.artefacts)
    freezer = Freezer(
        source=source,
        target=target,
        mapping=mapping,
        coverage=coverage or Coverage(),
        earlier=earlier,
        engine=engine,
        keyed=keyed,
        read_from=read_from,
        topics=frozenset(topics),
    )
    request = await freezer.freeze(namespaces)
    return replace(request, examples=examples, max_bytes_per_second=max_bytes_per_second, order=order)


async def verify_in_process(
    source: AdminClient,
    target: AdminClient,
    request: VerifyRequest,
    *,
    result_uri: str | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Read and compare in this process: for namespaces of up to about a million messages.

    :param result_uri: see `compare_in_process`; `progress` too.
    """
    verification = await compare_in_process(source, target, request, result_uri=result_uri, progress=progress)
    return await recheck(source, target, request, verification)


async def compare_in_process(
    source: AdminClient,
    target: AdminClient,
    request: VerifyRequest,
    *,
    result_uri: str | None = None,
    progress: Progress | None = None,
) -> Verification:
    """What the Spark job does, in this process: `conclude` rechecks its result.

    :param result_uri: next to it, checkpoints are written: if this process is killed, the same request does not read
        finished ranges again. None writes no checkpoints.
    :param progress: takes, in another thread, the number of entries that were read and their total.
    """
    return await asyncio.to_thread(_verify_here, source, target, request, result_uri, progress)


def store_request(run: Run, request: VerifyRequest, folder: str = FOLDER) -> tuple[str, str]:
    """Store the request for a Spark job; returns the URIs of the job's request and result."""
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
    """Read the result of a Spark job, recheck it and record it. `NotFound` without a result."""
    result = Verification.from_bytes(read_job_result(result_uri, "verification job"))
    verification = await recheck(source, target, request, result)
    record(run, verification, folder)
    return verification


def _note_proof(run: Run, verification: Verification) -> None:
    equal = sum(namespace.verdict is Verdict.EQUAL for namespace in verification.namespaces)
    figures = {"equal": equal, "namespaces": len(verification.namespaces), "messages": verification.proven}
    for cluster, other in ((verification.source, verification.target), (verification.target, verification.source)):
        write_note(run.artefacts, cluster, NoteKind.PROOF, run.id, {**figures, "with": other})


def record(run: Run, verification: Verification, folder: str = FOLDER) -> Reference:
    """Record the verdicts: a document and tables as artefacts, a row for each namespace in the ledger.

    A second call replaces them.
    """
    document = run.artefacts.write(run.id, f"{folder}/{VERDICT}", verification.to_bytes())
    for name, content in verdict_tables(verification).items():
        run.artefacts.write(run.id, f"{folder}/{name}", content)
    _note_proof(run, verification)
    for namespace in verification.namespaces:
        run.ledger.record_verdict(
            run.id,
            namespace.namespace,
            verdict=namespace.verdict,
            messages=namespace.proven,
            summary=namespace_summary(namespace, verification.restriction),
            artefact=document.to_json(),
        )
    return document


def _verify_here(
    source: AdminClient,
    target: AdminClient,
    request: VerifyRequest,
    result_uri: str | None,
    progress: Progress | None,
) -> Verification:
    # Imports protobuf and numpy, which planning does not need.
    from pulsar_fleet.messages.checkpoints import Checkpoints
    from pulsar_fleet.messages.engines.engines import Engines
    from pulsar_fleet.verification.messages.compare import judge
    from pulsar_fleet.verification.messages.local_backend import LocalBackend

    checkpoints = Checkpoints.next_to(result_uri, request.identity()) if result_uri else None
    with Engines(source.connection) as source_engines, Engines(target.connection) as target_engines:
        engines = {Side.SOURCE: source_engines, Side.TARGET: target_engines}
        verification = judge(request, LocalBackend(engines, checkpoints, progress))
    if checkpoints and verification.verdict is not Verdict.INCONCLUSIVE:
        checkpoints.remove()
    return verification
