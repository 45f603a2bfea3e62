"""What must hold on every broker, and what could not be read: both stop the run (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.partial_reads import Note, Problem, remedy_for
from pulsar_fleet.cluster.versions import REDIRECTS_WITHOUT_WAITING, version_order
from pulsar_fleet.migration.cutover.termination import CHECK_PERIOD, SELDOM_SECONDS
from pulsar_fleet.migration.preflight.gates.catalogue import Gate, Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import ClusterFacts, View
from pulsar_fleet.migration.unread_brokers import NOT_READABLE
from pulsar_fleet.preflight.context import NO_RESTART, in_broker_conf
from pulsar_fleet.preflight.findings import Finding

_FUNCTIONS = ("functions of ", "functions: ", "sources of ", "sinks of ")
AUTO_CREATION = "clusterMigrationAutoResourceCreation"

_CHECK_OFF = blocks(
    "migration-check-off",
    Owner.BLUE,
    "It would not terminate its topics: they stop loading, and producers are on both clusters.",
    never_waived="a topic in use on both clusters loses the order of its keys, and what is written to {blue} later.",
)
_CHECK_SELDOM = warns(
    "migration-check-seldom",
    Owner.BLUE,
    "Producers wait for the check; after 40 s they publish again, and a publish may be in flight at the termination.",
)
_AUTO_CREATION = blocks(
    "auto-resource-creation-on",
    Owner.BLUE,
    "The broker would create namespaces on {green} whose cluster list lacks {green}: topics there are deleted.",
    never_waived="{green} deletes the topics of such a namespace.",
)
_BROKER_UNREADABLE = blocks(
    NOT_READABLE,
    Owner.BLUE,
    "Its settings are not known, and each broker decides by its own settings whether it terminates topics.",
)
_SUPERUSER = blocks(
    "superuser-needed",
    Owner.RUN,
    "Only a superuser may read the brokers' settings, store the redirect and set the flag: gates cannot be evaluated.",
    never_waived="the cut-over would fail half-way.",
)
_RESTART_REPEATS = warns(
    "restart-repeats",
    Owner.APPLICATION,
    "An application that restarts through {blue} after the run, with a subscription from the earliest message, gets "
    "again what {blue} still stores of its topics, at each restart.",
)
_FUNCTIONS_UNKNOWN = blocks(
    "functions-unknown",
    Owner.BLUE,
    "Whether the namespaces have functions or connectors is not known; these would keep running on {blue}.",
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


def unloaded_topics_redirect_at_once(view: View) -> Iterator[Finding]:
    """Topics stay loaded on brokers that stand still when many clients of unloaded ones are redirected (observed)."""
    versions = sorted({broker.version for broker in view.blue.snapshot.brokers}, key=version_order)
    waiting = [version for version in versions if not REDIRECTS_WITHOUT_WAITING.holds(version)]
    if view.redirected and not view.blue.unflagged and view.expected.unload and waiting:
        yield _RESTART_REPEATS.finding(
            f"cluster {view.blue.name}",
            f"its brokers run Pulsar {', '.join(waiting)}: the run leaves terminated topics loaded there",
            f"upgrade {{blue}} to {', '.join(REDIRECTS_WITHOUT_WAITING.since)} or later before the run, or connect "
            "applications to {green} before they restart.",
        )


_REACH_BROKER = (
    "repair that broker; or, where it is reached from here at another address only, write that address in "
    '"broker_urls" of the connection; then run again'
)


def migration_check_runs_on_every_broker(view: View) -> Iterator[Finding]:
    """A broker whose migration check is off never terminates its topics: clients write to both clusters."""
    if view.redirected:
        yield from checks_are_on(view.blue)


def checks_are_on(blue: ClusterFacts) -> Iterator[Finding]:
    """The migration check of each broker."""
    for broker, settings in blue.brokers.items():
        seconds = str(settings.get(CHECK_PERIOD))
        # A role without permission gets no settings; another gate reports that.
        if settings and (not seconds.isdigit() or int(seconds) == 0):
            yield _CHECK_OFF.finding(
                f"broker {broker} of {blue.name}",
                f"{CHECK_PERIOD} = {seconds}",
                in_broker_conf(f"{CHECK_PERIOD}=1", "each broker without it"),
            )
        elif settings and int(seconds) > SELDOM_SECONDS:
            yield _CHECK_SELDOM.finding(
                f"broker {broker} of {blue.name}",
                f"{CHECK_PERIOD} = {seconds}",
                f"accept the longer pause, or {in_broker_conf(f'{CHECK_PERIOD}=1', 'each broker with a longer one')}",
            )


def resources_are_not_created_by_the_broker(view: View) -> Iterator[Finding]:
    """The broker's own resource creation copies blue's cluster list, so that green deletes the topics."""
    if view.redirected:
        yield from creation_is_off(view.blue)


def creation_is_off(blue: ClusterFacts) -> Iterator[Finding]:
    """The resource creation of each broker; those of Pulsar 3.0 have neither the setting nor the creation."""
    for broker, settings in blue.brokers.items() if not blue.unflagged else ():
        if settings and settings.get(AUTO_CREATION) != "false":
            yield _AUTO_CREATION.finding(
                f"broker {broker} of {blue.name}",
                f"{AUTO_CREATION} = {settings.get(AUTO_CREATION)}",
                in_broker_conf(f"{AUTO_CREATION}=false", "each broker without it"),
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
        for note in (*facts.unread, *(() if view.is_moved_before(facts.namespace) else facts.unread_copies)):
            yield _TOPIC_UNREADABLE.finding(note.resource, note.detail, _remedy(note))


def _kind_of(note: Note) -> Gate:
    if note.concerns_brokers:
        return _BROKER_UNREADABLE
    if note.resource.startswith(_FUNCTIONS):
        return _FUNCTIONS_UNKNOWN
    return _INCOMPLETE


def _remedy(note: Note) -> str:
    if note.resource.startswith("broker "):
        return f"{remedy_for(note, _REACH_BROKER)}. {NO_RESTART}"
    if note.resource.startswith(_FUNCTIONS):
        worker = "make the functions worker answer through the brokers, or waive this if no worker exists"
        return f"{remedy_for(note, worker)}."
    return f"{remedy_for(note)}."
