"""What must hold on every broker, and what could not be read: both stop the run (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.migration.cutover.termination import CHECK_PERIOD
from pulsar_fleet.migration.preflight.gates.catalogue import Gate, Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_SELDOM_SECONDS = 10
AUTO_CREATION = "clusterMigrationAutoResourceCreation"

_CHECK_OFF = blocks(
    "migration-check-off",
    Owner.BLUE,
    "It would not terminate its topics: they stop loading, and producers are on both clusters.",
    never_waived="a topic in use on both clusters loses the order of its keys, and what is written to blue later.",
)
_CHECK_SELDOM = warns(
    "migration-check-seldom",
    Owner.BLUE,
    "Producers wait for the check; after 40 s they publish again, and a publish may be in flight at the termination.",
)
_AUTO_CREATION = blocks(
    "auto-resource-creation-on",
    Owner.BLUE,
    "The broker would create namespaces on green whose cluster list lacks green: topics there are deleted.",
    never_waived="green deletes the topics of such a namespace.",
)
_BROKER_UNREADABLE = blocks(
    "broker-not-readable",
    Owner.BLUE,
    "Its settings are not known, and each broker decides by its own settings whether it terminates topics.",
)
_SUPERUSER = blocks(
    "superuser-needed",
    Owner.RUN,
    "Only a superuser may read the brokers' settings, store the redirect and set the flag: gates cannot be evaluated.",
    never_waived="the cut-over would fail half-way.",
)
_FUNCTIONS_UNKNOWN = blocks(
    "functions-unknown",
    Owner.BLUE,
    "Whether the namespaces have functions or connectors is not known; these would keep running on blue.",
)
_TOPIC_UNREADABLE = blocks(
    "topic-not-readable",
    Owner.BLUE,
    "Its clients, backlog and transactions are not known, and a topic that does not load cannot load under the flag.",
    never_waived="the backlog of a flagged topic that is not loaded can no longer be read.",
)
_INCOMPLETE = blocks(
    "not-readable",
    Owner.RUN,
    "The other gates could not check what was not read.",
)


_RESTART = "Restart no broker while a migrated namespace drains: a flagged topic is not loaded again."


def migration_check_runs_on_every_broker(view: View) -> Iterator[Finding]:
    """A broker whose migration check is off never terminates its topics: clients write to both clusters."""
    for broker, settings in view.blue.brokers.items():
        seconds = str(settings.get(CHECK_PERIOD))
        # A role without permission gets no settings; another gate reports that.
        if settings and (not seconds.isdigit() or int(seconds) == 0):
            yield _CHECK_OFF.finding(
                f"broker {broker} of {view.blue.name}",
                f"{CHECK_PERIOD} = {seconds}",
                f"set it to 1–10 in that broker's broker.conf and restart it: it is not dynamic. {_RESTART}",
            )
        elif settings and int(seconds) > _SELDOM_SECONDS:
            yield _CHECK_SELDOM.finding(
                f"broker {broker} of {view.blue.name}",
                f"{CHECK_PERIOD} = {seconds}",
                f"set it to 1–10 in that broker's broker.conf and restart it, or accept the longer pause. {_RESTART}",
            )


def resources_are_not_created_by_the_broker(view: View) -> Iterator[Finding]:
    """The broker's own resource creation copies blue's cluster list, so that green deletes the topics."""
    for broker, settings in view.blue.brokers.items():
        if settings and settings.get(AUTO_CREATION) != "false":
            yield _AUTO_CREATION.finding(
                f"broker {broker} of {view.blue.name}",
                f"{AUTO_CREATION} = {settings.get(AUTO_CREATION)}",
                f"set it to false in that broker's broker.conf and restart it: it is not dynamic. {_RESTART}",
            )


def everything_could_be_read(view: View) -> Iterator[Finding]:
    """What was not read is a blocker; one finding for everything that the role may not read."""
    for cluster in (view.blue, view.green):
        hidden = [note for note in cluster.unread if note.problem == Problem.HIDDEN]
        if hidden:
            yield _SUPERUSER.finding(
                f"cluster {cluster.name}",
                f"the role may not read: {', '.join(sorted({note.resource for note in hidden}))}",
                f"give the connection to {cluster.name} the token of a superuser.",
            )
        for note in cluster.unread:
            if note.problem != Problem.HIDDEN:
                yield _kind_of(note).finding(f"{note.resource} of {cluster.name}", note.detail, _remedy(note))
    for facts in view.moving:
        for note in facts.unread:
            yield _TOPIC_UNREADABLE.finding(note.resource, note.detail, _remedy(note))


def _kind_of(note: Note) -> Gate:
    if note.resource == "brokers" or note.resource.startswith("broker "):
        return _BROKER_UNREADABLE
    if note.resource.startswith(("functions", "sources", "sinks")):
        return _FUNCTIONS_UNKNOWN
    return _INCOMPLETE


def _remedy(note: Note) -> str:
    if note.resource.startswith("broker "):
        return f"repair or restart that broker, then run again. {_RESTART}"
    if note.resource.startswith("functions"):
        return "make the functions worker answer through the brokers, or waive this if no worker exists."
    return "run again; if it fails again, search the broker's log for this name."
