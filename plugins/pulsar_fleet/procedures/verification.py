"""The comparison of the messages and subscriptions of two clusters as a procedure; see docs/verify_clusters.md."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import (
    Application,
    Batches,
    Ended,
    Ending,
    Procedure,
    Session,
    Skipped,
    Step,
    Unmet,
)
from pulsar_fleet.settings.verification import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.verification.messages.verdict import Verification
    from pulsar_fleet.verification.request import VerifyRequest

ENTRIES_HERE = 1_000_000
"""Entries of both clusters above which a Spark job is faster."""
FROZEN = "frozen.json"
ENDED = {"equal": Ended.DONE, "different": Ended.DIFFERENT, "inconclusive": Ended.INCONCLUSIVE}
"""Verdict → how a run with it ended."""


def validate(conf: JsonObject) -> None:
    """Refuse invalid namespaces, an invalid window, and subscriptions in a mesh."""
    from pulsar_fleet.cluster.names import parse_namespaces
    from pulsar_fleet.verification.coverage import coverage_of
    from pulsar_fleet.verification.request import EntryMapping, require_comparable

    parse_namespaces(conf["namespaces"])
    coverage_of({**_DEFAULTS, **conf})
    require_comparable(EntryMapping(conf["mapping"]), subscriptions=conf["subscriptions"])


_DEFAULTS = {name: setting.default for name, setting in SETTINGS.items()}


async def read_batches(session: Session) -> list[JsonObject]:
    """Refuse one cluster twice and namespaces that the source lacks; returns the namespaces of each Spark job."""
    from pulsar_fleet.cluster.connection import refuse_same_cluster
    from pulsar_fleet.cluster.names import parse_namespaces
    from pulsar_fleet.snapshot.cluster_reader import require_namespaces
    from pulsar_fleet.verification.request import FOLDER

    source, target = (session.clusters[name] for name in ("source", "target"))
    names = parse_namespaces(session.conf["namespaces"])
    both = await asyncio.gather(source.cluster_name(), target.cluster_name())
    refuse_same_cluster(session.conf["source"], session.conf["target"], both)
    await require_namespaces(source, names)
    size = session.conf["namespaces_per_job"]
    parts = [[str(name) for name in names[start : start + size]] for start in range(0, len(names), size)]
    return [
        {"namespaces": part, "folder": FOLDER if len(parts) == 1 else f"{FOLDER}/{number}"}
        for number, part in enumerate(parts, start=1)
    ]


async def freeze_bounds(session: Session) -> str:
    """Freeze the bounds: the current end of the source, and on the target the messages that came from it."""
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.bounds.engine_choice import EngineChoice, ReadFrom
    from pulsar_fleet.verification.coverage import coverage_of
    from pulsar_fleet.verification.request import EntryMapping, Order

    conf = session.conf
    frozen = await steps.freeze_bounds(
        session.clusters["source"],
        session.clusters["target"],
        [NamespaceName.parse(text) for text in session.batch["namespaces"]],
        mapping=EntryMapping(conf["mapping"]),
        coverage=coverage_of(conf),
        run=session.run,
        examples=conf["examples"],
        engine=EngineChoice(conf["engine"]),
        keyed=conf["keyed_digests"],
        read_from=ReadFrom(conf["read_from"]),
        max_bytes_per_second=limit_of_batch(session),
        order=Order(conf["order"]),
    )
    return store_frozen(session, frozen)


def limit_of_batch(session: Session) -> int | None:
    """The read limit of a job: those that work at once share the limit of the broker."""
    from pulsar_fleet.procedures.runner import stored_batches

    limit: int | None = session.conf["max_bytes_per_second"]
    return limit and max(1, limit // min(session.jobs_at_once, max(1, len(stored_batches(session.run)))))


def store_frozen(session: Session, frozen: VerifyRequest) -> str:
    """Store for the steps behind it what is compared, and say it."""
    from pulsar_fleet.cluster.text import counted
    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.subscriptions import steps as subscription_steps

    run, folder = records_of(session.run, session.batch)
    request, result = steps.store_request(run, frozen, folder)
    subscriptions = subscription_steps.result_uri(run, folder)
    document = {"request": request, "result": result, "subscriptions": subscriptions, "entries": frozen.entries}
    session.run.artefacts.write_json(session.run.id, session.stored_at(FROZEN), document)
    hint = " In Airflow a Spark job does it, which is faster." if frozen.entries > ENTRIES_HERE else ""
    return f"{counted(len(frozen.pairs), 'topic')} and {counted(frozen.entries, 'entry')} are compared.{hint}"


def records_of(run: Run, batch: JsonObject) -> tuple[Run, str]:
    """The run and the folder of the records of a batch.

    A batch may name a `run` of its own: the ledger keeps one verdict of a namespace for each run.
    """
    from pulsar_fleet.verification.request import FOLDER

    return (replace(run, id=batch["run"]), FOLDER) if "run" in batch else (run, batch["folder"])


async def compare_messages(session: Session) -> str:
    """Read both clusters and compare them: by the Spark job, on the terminal in this process."""
    from upath import UPath

    from pulsar_fleet.report.progress import progress_lines
    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.request import VerifyRequest

    frozen = _frozen(session)
    if session.spark:
        await asyncio.to_thread(session.spark, frozen["request"], frozen["result"])
        return "Compared by the Spark job."
    result = UPath(frozen["result"])
    result.parent.mkdir(parents=True, exist_ok=True)
    compared = await steps.compare_in_process(
        session.clusters["source"],
        session.clusters["target"],
        VerifyRequest.from_bytes(UPath(frozen["request"]).read_bytes()),
        result_uri=frozen["result"],
        progress=progress_lines("entries", session.say),
    )
    result.write_bytes(compared.to_bytes())
    return "Compared in this process."


async def compare_subscriptions(session: Session) -> str | Skipped:
    """Compare the backlog of each subscription: where that is faster than starting Spark in this process."""
    from upath import UPath

    from pulsar_fleet.report.progress import progress_lines
    from pulsar_fleet.verification.request import VerifyRequest
    from pulsar_fleet.verification.subscriptions.report import subscription_text
    from pulsar_fleet.verification.subscriptions.steps import compare_in_process, fits_in_process

    if not session.conf["subscriptions"]:
        return Skipped("The setting 'subscriptions' of this run is off.")
    frozen = _frozen(session)
    request, result = frozen["request"], frozen["subscriptions"]
    if session.spark and not fits_in_process(VerifyRequest.from_bytes(UPath(request).read_bytes())):
        await asyncio.to_thread(session.spark, request, result)
        return "Compared by the Spark job."
    progress = progress_lines("topics with their subscriptions compared", session.say)
    (source,), (target,) = (session.connections[name] for name in ("source", "target"))
    compared = await compare_in_process(source, target, request, result, progress)
    return f"verdict {compared.verdict}\n{subscription_text(compared)}"


async def read_verdict(session: Session) -> str | Unmet:
    """Record the verdict; fail unless it is equal, and list the first different messages and subscriptions."""
    from upath import UPath

    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.messages.report import verification_text
    from pulsar_fleet.verification.messages.verdict import Verdict
    from pulsar_fleet.verification.request import VerifyRequest
    from pulsar_fleet.verification.subscriptions.report import subscription_text
    from pulsar_fleet.verification.subscriptions.steps import conclude

    frozen, (run, folder) = _frozen(session), records_of(session.run, session.batch)
    request = VerifyRequest.from_bytes(UPath(frozen["request"]).read_bytes())
    sides = (session.clusters["source"], session.clusters["target"])
    compared = await steps.conclude(run, *sides, request, frozen["result"], folder)
    verdicts, texts = [compared.verdict], [verification_text(compared)]
    if session.conf.get("subscriptions"):
        subscriptions = conclude(run, frozen["subscriptions"], folder)
        verdicts.append(subscriptions.verdict)
        texts.append(f"Subscriptions\n{subscription_text(subscriptions)}")
    text, equal = "\n\n".join(texts), Verdict.over(verdicts) is Verdict.EQUAL
    if run.id != session.run.id:
        run.ledger.finish_run(run.id, "succeeded" if equal else "failed")
    return text if equal else Unmet(f"Not verified as equal.\n{text}")


def stored_verification(run: Run, batch: JsonObject) -> Verification | None:
    """The recorded comparison of the messages of a batch; None before it."""
    from pulsar_fleet.verification.messages.verdict import Verification
    from pulsar_fleet.verification.steps import VERDICT

    own, folder = records_of(run, batch)
    reference = own.artefacts.find(own.id, f"{folder}/{VERDICT}")
    return Verification.from_bytes(own.artefacts.read(reference)) if reference else None


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """The verdict over all batches."""
    from pulsar_fleet.procedures.runner import stored_batches
    from pulsar_fleet.report.failure import failure_details, failure_line, failure_to_do
    from pulsar_fleet.report.verification import joined, verification_report
    from pulsar_fleet.verification.messages.report import verification_text
    from pulsar_fleet.verification.messages.verdict import Verdict
    from pulsar_fleet.verification.subscriptions.report import subscription_text

    batches = stored_batches(run)
    report = verification_report(run, failed, batches)
    if report.body and (stopped := {name: why for name, why in failed.items() if not name.startswith("read_verdict")}):
        # What an earlier attempt has compared is no reason of this failure.
        line = f"{failure_line(stopped)}.{failure_details(stopped)}"
        report = replace(report, to_do=failure_to_do(stopped), body=(line, *report.body) if batches else report.body)
    messages, subscriptions = joined(run, batches)
    if messages is None:
        return Ending(report=report, text="", document={})
    parts = [part for part in (messages, subscriptions) if part]
    verdict = Verdict.over(part.verdict for part in parts)
    texts = [verification_text(messages)]
    texts += [f"Subscriptions\n{subscription_text(subscriptions)}"] if subscriptions else []
    return Ending(
        report=report,
        text="\n\n".join(texts),
        document={
            "verdict": verdict,
            "messages": messages.to_json(),
            "subscriptions": subscriptions.to_json() if subscriptions else None,
        },
        ended=ENDED[verdict],
    )


def _frozen(session: Session) -> JsonObject:
    document: JsonObject = session.run.stored(session.stored_at(FROZEN))
    return document


_JOB_READS = ("source", "target")
VERIFICATION = Procedure(
    name="verify_clusters",
    command="verify",
    recorded_as="verify",
    summary="Verify that two clusters are equal. Exits with 3 if they differ, with 6 if it is inconclusive.",
    clusters={
        "source": "Cluster that holds the originals: admin URL or Airflow connection id.",
        "target": "Cluster that holds the copy: admin URL or Airflow connection id.",
    },
    own_settings=SETTINGS,
    opening="read_request",
    validate=validate,
    changes=None,
    work=Batches(
        "compare_batch",
        read_batches,
        (
            Step("freeze_bounds", freeze_bounds, reads=True, shows=True),
            Step("compare_messages", compare_messages, reads=True, spark=Application("verify_messages.py", _JOB_READS)),
            Step(
                "compare_subscriptions",
                compare_subscriptions,
                reads=True,
                spark=Application("verify_subscriptions.py", _JOB_READS),
                beside=True,
            ),
            Step("read_verdict", read_verdict, reads=True),
        ),
    ),
    end=end,
)
