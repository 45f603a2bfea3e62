"""Proofs of replication and of read-only serving; see docs/verify_replication.md and docs/verify_read_only.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pulsar_fleet.procedures import verification
from pulsar_fleet.procedures.procedure import Application, Batches, Ended, Ending, Procedure, Session, Step
from pulsar_fleet.settings.read_only import VERIFY_READ_ONLY
from pulsar_fleet.settings.replication import VERIFY

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run

_SIDES = ("source", "target")
_UNREAD = "unread-lists.json"
_COMPARE = (
    Step(
        "compare_messages",
        verification.compare_messages,
        reads=True,
        spark=Application("verify_messages.py", _SIDES),
    ),
    Step("read_verdict", verification.read_verdict, reads=True),
)


def validate_served(conf: JsonObject) -> None:
    """Refuse an invalid namespace."""
    from pulsar_fleet.cluster.names import NamespaceName

    NamespaceName.parse(conf["namespace"])


async def read_served(session: Session) -> list[JsonObject]:
    """One comparison: the sources and their shadow topics are on the same cluster."""
    from pulsar_fleet.verification.request import FOLDER

    (cluster,) = session.connections["cluster"]
    namespaces = [session.conf["namespace"]]
    return [{**dict.fromkeys(_SIDES, cluster.argument), "namespaces": namespaces, "folder": FOLDER}]


async def freeze_served(session: Session) -> str:
    """Freeze the entries that the sources have now; their shadow topics must reach them within 30 s."""
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.read_only.upkeep.proof import freeze_served

    (name,), limit = session.batch["namespaces"], session.conf["max_bytes_per_second"]
    frozen = await freeze_served(session.clusters["source"], NamespaceName.parse(name), max_bytes_per_second=limit)
    return verification.store_frozen(session, frozen)


def validate_links(conf: JsonObject) -> None:
    """Refuse an invalid selection."""
    from pulsar_fleet.cluster.selection import Selection

    Selection.parse(conf["selection"])


def idle(conf: JsonObject) -> str:
    """A scheduled run without clusters has nothing to verify."""
    unset = "No cluster is named: set PULSAR_FLEET_VERIFY_REPLICATION, or fill in the form."
    return "" if conf["clusters"] else unset


async def find_links(session: Session) -> list[JsonObject]:
    """Find what is replicated between the clusters now.

    Returns batches: one direction between two clusters, its namespaces, of some of them single topics, and the mode:
    incremental behind a proof. What could not be read is stored, and fails the run at its end.
    """
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.replication.clusters import open_clusters
    from pulsar_fleet.replication.replicated_namespaces import replicated_namespaces

    run, conf, batches = session.run, session.conf, list["JsonObject"]()
    async with open_clusters(session.connections["clusters"]) as clusters:
        links, unread = await replicated_namespaces(clusters, Selection.parse(conf["selection"]))
        named = {name: admin.connection.argument for name, admin in clusters.admins.items()}
    run.artefacts.write_json(run.id, _UNREAD, list(unread))
    for link, sent in links.items():
        for mode, group in _by_mode(run, sorted(map(str, sent)), link.source, link.target).items():
            for number, part in enumerate(_parts(group, conf["namespaces_per_job"])):
                own = "/".join((link.source, link.target, f"{mode}-{number}"))
                batches.append(
                    {
                        "source": named[link.source],
                        "target": named[link.target],
                        "names": [link.source, link.target],
                        "namespaces": part,
                        "topics": [str(topic) for name in part for topic in sent[NamespaceName.parse(name)]],
                        "mode": mode,
                        "folder": f"links/{own}",
                        "run": f"{run.id}/{own}",
                    }
                )
    return batches


def _parts(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _by_mode(run: Run, names: Iterable[str], source: str, target: str) -> dict[str, list[str]]:
    """Namespaces with a proof to continue are read from its end."""
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.verification.messages.incremental import earlier_proofs

    modes: dict[str, list[str]] = {}
    for name in names:
        try:
            proofs = earlier_proofs(run.ledger, run.artefacts, NamespaceName.parse(name), source, target)
        except InvalidRequest:
            proofs = {}
        mode = "incremental" if proofs and all(proof["mesh"] for proof in proofs.values()) else "full"
        modes.setdefault(mode, []).append(name)
    return modes


async def freeze_link(session: Session) -> str:
    """Freeze the bounds: what producers wrote to the source, and its copies on the target."""
    from pulsar_fleet.cluster.names import NamespaceName, TopicName
    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.coverage import Coverage, Mode
    from pulsar_fleet.verification.request import EntryMapping

    batch, (run, _) = session.batch, verification.records_of(session.run, session.batch)
    run.ledger.start_run(run.id, REPLICATION_PROOFS.name, batch)
    frozen = await steps.freeze_bounds(
        session.clusters["source"],
        session.clusters["target"],
        [NamespaceName.parse(name) for name in batch["namespaces"]],
        mapping=EntryMapping.MESH,
        coverage=Coverage(mode=Mode(batch["mode"])),
        run=run,
        max_bytes_per_second=verification.limit_of_batch(session),
        topics=[TopicName.parse(topic) for topic in batch["topics"]],
    )
    return verification.store_frozen(session, frozen)


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """The age of every proof; the run fails if one is too old or missing, or a list is unknown."""
    from pulsar_fleet.procedures.runner import stored_batches
    from pulsar_fleet.report.replication import NOTHING, proofs_report
    from pulsar_fleet.verification.messages.incremental import proof_ages, too_old
    from pulsar_fleet.verification.messages.report import verification_text
    from pulsar_fleet.verification.messages.verdict import Verdict

    batches, unread = stored_batches(run), run.stored(_UNREAD) or []
    ages = proof_ages(run, sorted((name, *batch["names"]) for batch in batches for name in batch["namespaces"]))
    old = too_old(ages, conf["max_proof_age_hours"])
    lines = ["Proofs are too old or missing:", *(age.text() for age in old)] if old else []
    lines += ["What is replicated is unknown:", *unread] if unread else []
    compared = [one for batch in batches if (one := verification.stored_verification(run, batch))]
    ended = verification.ENDED[Verdict.over(one.verdict for one in compared)] if compared else Ended.DONE
    return Ending(
        report=proofs_report(ages, old, failed, unread),
        text="\n".join(
            [*map(verification_text, compared), *(age.text() for age in ages), *lines] or ([] if failed else [NOTHING])
        ),
        document={
            "verdict": Verdict.over(one.verdict for one in compared) if compared else None,
            "proofs": [age.text() for age in ages],
            "unread": unread,
            "compared": [one.to_json() for one in compared],
        },
        ended=Ended.INCONCLUSIVE if lines and ended is Ended.DONE else ended,
        problem="\n".join(lines),
        metrics={"oldest_proof_seconds": max((age.seconds or 0 for age in ages), default=0)},
    )


READ_ONLY_PROOFS = Procedure(
    name="verify_read_only",
    summary="Verify that topics that are served read-only hold the same messages as their sources.",
    clusters={"cluster": "Cluster that serves the topics: admin URL or Airflow connection id."},
    own_settings=VERIFY_READ_ONLY,
    opening="read_request",
    validate=validate_served,
    changes=None,
    work=Batches(
        "compare", read_served, (Step("freeze_bounds", freeze_served, reads=True, shows=True), *_COMPARE), _SIDES
    ),
    end=verification.end,
)

REPLICATION_PROOFS = Procedure(
    name="verify_replication",
    summary="Verify replicated namespaces in every direction, each from the end of its newest proof.",
    clusters={"clusters": "The clusters that replicate to each other: admin URLs or Airflow connection ids."},
    own_settings=VERIFY.declared,
    opening="find_links",
    closes="check_proofs",
    validate=validate_links,
    idle=idle,
    changes=None,
    work=Batches(
        "compare_link", find_links, (Step("freeze_bounds", freeze_link, reads=True, shows=True), *_COMPARE), _SIDES
    ),
    end=end,
)
