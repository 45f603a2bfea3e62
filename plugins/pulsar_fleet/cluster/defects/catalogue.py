"""Every known defect of brokers, and those of one version (pure).

`docs/known_defects.md` has this table. Sources: the release notes of 4.0.9 to 4.0.14, 4.2.1 to 4.2.5 and 5.0.0, and the
threads of the changes; of 4.0.8 what `bundles-replaced` says. A patch of a line is named only where these name it.
"""

from __future__ import annotations

from collections.abc import Collection

from pulsar_fleet.cluster.defects.model import BrokerDefect, Condition, Evidence, Span, fixed_in, line_of, open_in

TOPIC_DEFECTS: tuple[BrokerDefect, ...] = (
    BrokerDefect(
        id="shadow-deletes-source",
        symptom="Trimming, offloading or deleting a shadow topic may delete ledgers of its source.",
        spans=fixed_in("4.0.14", "4.2.5", "5.0.0"),
        condition=Condition.SHADOW_TOPICS,
        seen="The log of the shadow's broker has `Removing ledger` under the shadow's name, then readers of the source "
        "have `No such ledger exists`.",
        remedy="set the retention of the shadow's namespace to infinite (-1/-1), and neither delete nor trim the "
        "shadow.",
        issues=("apache/pulsar#26746",),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="shadow-replicator-leaks",
        symptom="The replicator of a shadow topic keeps the memory of what it has sent.",
        spans=fixed_in("5.0.0-M2"),
        condition=Condition.SHADOW_TOPICS,
        seen="Direct memory of the broker grows with what the source's producers publish.",
        remedy="watch the direct memory of the brokers that serve the sources.",
        issues=("apache/pulsar#25732",),
    ),
    BrokerDefect(
        id="batch-acknowledgments-forgotten",
        symptom="An unload forgets acknowledgments within a batch: these messages are delivered again.",
        spans=fixed_in("4.0.14", "4.2.5", "5.0.0-M2"),
        condition=Condition.BATCH_ACKNOWLEDGMENTS,
        seen="Consumers get messages of a batch again that they acknowledged before its topic was unloaded.",
        remedy="let consumers accept a message twice, or let them read their backlog before topics are unloaded.",
        issues=("apache/pulsar#26474", "apache/pulsar#26475", "apache/pulsar#20585"),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="batch-acknowledgments-unwritten",
        symptom="Acknowledgments within the only unread batch are not stored until another entry is acknowledged.",
        spans=open_in("4.0", "4.2", "5.0"),
        condition=Condition.SYMPTOM,
        seen="After a crash, consumers get messages of that batch again; statistics do not show such acknowledgments.",
        remedy="let consumers accept a message twice.",
        issues=("apache/pulsar#26498",),
    ),
    BrokerDefect(
        id="batch-acknowledgments-unlimited",
        symptom="The limit of stored acknowledgments within batches is ignored.",
        spans=open_in("4.0", "4.2", "5.0"),
        condition=Condition.SYMPTOM,
        seen="The metadata of a cursor grows with the number of batches of which a part is acknowledged.",
        remedy="let consumers acknowledge whole batches where they can.",
        issues=("apache/pulsar#26499", "apache/pulsar#26553"),
    ),
    BrokerDefect(
        id="cursor-properties-forgotten",
        symptom="A cursor whose ledger cannot be read loses its properties: the place of the compacted ledger, or that "
        "a subscription is replicated.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.COMPACTION,
        seen="After bookies lost a ledger, readers of the compacted topic get the log instead.",
        remedy="after a loss of ledgers, compact the topic again only if its log still has every value.",
        issues=("apache/pulsar#26512", "apache/pulsar#26483"),
    ),
    BrokerDefect(
        id="offload-forgotten",
        symptom="Loading a topic forgets that its last ledger was offloaded.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.OFFLOAD,
        seen="`internal-info` of the topic shows no offload of a ledger that was offloaded.",
        remedy="leave the offloaded objects where they are: the ledger may be offloaded once more.",
        issues=("apache/pulsar#26509", "apache/pulsar#26227"),
    ),
    BrokerDefect(
        id="compacted-read-stuck",
        symptom="A reader of a compacted topic may stop for good, or miss messages, after it connects again.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.COMPACTION,
        seen="`hasMessageAvailable` answers true, and no message comes.",
        remedy="restart a reader that gets nothing, from the earliest message.",
        issues=("apache/pulsar#25998",),
    ),
    BrokerDefect(
        id="compaction-blocks-deletion",
        symptom="A forced deletion of a topic or namespace may hang or fail for as long as a compaction runs.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.COMPACTION,
        seen="The deletion ends by time-out, or fails at each try until the topic was unloaded.",
        remedy="before a deletion that is meant, wait until the compaction has ended.",
        issues=("apache/pulsar#26016", "apache/pulsar#26026", "apache/pulsar#24148"),
    ),
    BrokerDefect(
        id="subscribe-rate-stalls-compaction",
        symptom="A limited rate of subscribing may stall a compaction, also that of the policies of topics.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.SUBSCRIBE_RATE,
        seen="The log has `Subscribe limited by subscribe rate limit per consumer.` for `__compaction`.",
        remedy="raise the rate, so that one consumer may subscribe more than once in a period.",
        issues=("apache/pulsar#26015",),
    ),
    BrokerDefect(
        id="expiry-skips-readers",
        symptom="The time to live moves readers past messages that they have not read.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.READERS_WITH_EXPIRY,
        seen="A reader that is behind misses messages that are older than the time to live, without an error.",
        remedy="let readers catch up within the time to live, or raise it on the namespaces that have readers.",
        issues=("apache/pulsar#26505", "apache/pulsar#26504"),
    ),
    BrokerDefect(
        id="publishes-hang-at-termination",
        symptom="Publishes in flight at a termination may never be completed, and their topic stays fenced.",
        spans=fixed_in("4.0.14", "4.2.5", "5.0.0"),
        condition=Condition.SYMPTOM,
        signs=("topic-fenced",),
        seen="The log has `Managed ledger was already terminated`, then `Attempting to add producer to a fenced "
        "topic`.",
        remedy="limit the rate of its producers before a topic is terminated, as a migration does.",
        issues=("apache/pulsar#26678",),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="entries-behind-termination",
        symptom="A termination that meets the roll-over of a ledger leaves it writable: entries behind its position "
        "are acknowledged to producers and never delivered.",
        spans=fixed_in("4.0.14", "4.2.5", "5.0.0"),
        condition=Condition.SYMPTOM,
        seen="The last ledger of the topic has entries behind `terminatedPosition` of `internal-info`.",
        remedy="limit the rate of its producers before a topic is terminated, as a migration does.",
        issues=("apache/pulsar#26680", "apache/pulsar#25795", "apache/pulsar#25858"),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="throttled-too-long",
        symptom="A throttled producer waits on, after its rate was lifted, for as long as was computed before.",
        spans=fixed_in("4.0.10", "4.2.1"),
        condition=Condition.SYMPTOM,
        seen="Producers publish nothing for seconds after the rate was lifted.",
        remedy="wait: the pause ends by itself.",
        issues=("apache/pulsar#25502",),
        evidence=Evidence.MEASURED,
    ),
)


_UNLOAD = (
    "unload the topic on the source, if its namespace is not flagged for a migration and its consumers accept messages "
    "twice: its replicator starts again."
)
_STALLED = ("stalled-unexplained",)

REPLICATOR_DEFECTS: tuple[BrokerDefect, ...] = (
    BrokerDefect(
        id="replicator-stops-at-read-error",
        symptom="A replicator that could not read an entry once does not read again.",
        spans=fixed_in("4.0.11", "4.2.2"),
        condition=Condition.SYMPTOM,
        signs=_STALLED,
        seen="The log has a failed read of BookKeeper, and the backlog to one cluster grows.",
        remedy=_UNLOAD,
        issues=("apache/pulsar#25625", "apache/pulsar#25767"),
    ),
    BrokerDefect(
        id="replicator-stops-at-failed-publish",
        symptom="A replicator stops after the other cluster refused one of its messages.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.SYMPTOM,
        signs=_STALLED,
        seen="It stopped when the other cluster refused it, by a backlog quota for example, and is connected again.",
        remedy=_UNLOAD,
        issues=("apache/pulsar#26002",),
    ),
    BrokerDefect(
        id="replicator-stops-at-rewind",
        symptom="A replicator stops when it goes back to an entry while a read is in flight.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.SYMPTOM,
        signs=_STALLED,
        seen="It is connected and has a backlog, and its cursor shows no pending read.",
        remedy=_UNLOAD,
        issues=("apache/pulsar#26106",),
    ),
    BrokerDefect(
        id="replicator-stops-at-rate",
        symptom="A replicator whose dispatch rate is limited may stop for good when it reaches the limit.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.REPLICATOR_RATE,
        signs=_STALLED,
        seen="It is connected and has a backlog, and a dispatch rate of replicators is set.",
        remedy="raise the dispatch rate of replicators above what producers publish.",
        issues=("apache/pulsar#26005",),
    ),
    BrokerDefect(
        id="replicator-stops-for-a-topic",
        symptom="Replicators of single topics stop, for several reasons, and do not start again.",
        spans=open_in("4.0", "4.2"),
        condition=Condition.SYMPTOM,
        signs=(*_STALLED, "disconnected-unexplained"),
        seen="Replicators of other topics between the same clusters work.",
        remedy=_UNLOAD,
        issues=("apache/pulsar#25097",),
    ),
    BrokerDefect(
        id="replicator-asks-without-end",
        symptom="A replicator whose topic is deleted while it starts asks for its partitions without end.",
        spans=(Span("4.0"), *fixed_in("4.2.5", "5.0.0")),
        condition=Condition.SYMPTOM,
        signs=("disconnected-unexplained",),
        seen="The broker sends itself requests for the partitions of a topic that does not exist, without a pause.",
        remedy="create the topic again if it is meant to exist; otherwise restart the broker, where no migrated "
        "namespace drains.",
        issues=("apache/pulsar#26681",),
    ),
    BrokerDefect(
        id="inactive-topic-deleted",
        symptom="An inactive topic may be deleted while it still replicates.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.REPLICATION,
        seen="A topic without clients is gone on the source, and the target lacks its last messages.",
        remedy="turn off the deletion of inactive topics on the namespaces that replicate.",
        issues=("apache/pulsar#25915",),
    ),
    BrokerDefect(
        id="one-way-target-silent",
        symptom="The target of a replication in one direction shows no statistics of it.",
        spans=fixed_in("4.0.11", "4.2.2"),
        condition=Condition.SYMPTOM,
        seen="`replication` in the statistics of the target's topic is empty, and messages arrive.",
        remedy="read the statistics of the source.",
        issues=("apache/pulsar#25583",),
    ),
    BrokerDefect(
        id="dotted-cluster-name",
        symptom="Calls about a replicator fail whose cluster has a dot in its name.",
        spans=fixed_in("4.0.14", "4.2.5", "5.0.0-M2"),
        condition=Condition.DOTTED_NAME,
        seen="Skipping its backlog answers 404 `Subscription pulsar.repl.eu.west not found`; the statistics have it.",
        remedy="nothing while it replicates; do not clear the backlog of a whole namespace, which may miss it.",
        issues=("apache/pulsar#26451", "apache/pulsar#26450"),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="system-topic-partitions-differ",
        symptom="Replication of a namespace may give its system topic other partitions on each cluster.",
        spans=fixed_in("4.0.10"),
        condition=Condition.SYMPTOM,
        signs=("policy-topic-differs",),
        seen="`__change_events` has partitions on one cluster only.",
        remedy="do not delete this topic; set global policies of topics on both clusters.",
        issues=("apache/pulsar#25312",),
    ),
    BrokerDefect(
        id="list-not-cleared",
        symptom="The list of clusters of a namespace cannot be made empty.",
        spans=open_in("4.0", "4.2"),
        condition=Condition.SYMPTOM,
        seen="The call answers 412 `ClusterIds should not be null or empty`.",
        remedy="leave the cluster that serves the namespace in its list.",
        issues=("apache/pulsar#24640",),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="empty-list-of-clusters",
        symptom="A namespace could be created with an empty list of clusters.",
        spans=fixed_in("4.0.10", "4.2.1"),
        condition=Condition.EMPTY_LIST,
        seen="`replication_clusters` of its policies is empty.",
        remedy="set its list to the cluster that serves it.",
        issues=("apache/pulsar#25551",),
    ),
    BrokerDefect(
        id="removed-cluster-deletes-without-end",
        symptom="When the deletion of a topic fails whose cluster was taken out of its list, it is tried without a "
        "pause.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.SYMPTOM,
        seen="The log repeats `Local cluster … is not part of global namespace repl list` and `Error deleting topic`.",
        remedy="never take the cluster that serves a namespace out of its list.",
        issues=("apache/pulsar#26432",),
    ),
    BrokerDefect(
        id="not-allowed-answers-fenced",
        symptom="Loading a topic that its cluster may not serve answers that the topic is fenced.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.SYMPTOM,
        seen="Clients and calls get `TopicFencedException` for a topic whose own list lacks the cluster.",
        remedy="read the list of the topic before anything is done about the fence.",
        issues=("apache/pulsar#26276",),
    ),
    BrokerDefect(
        id="snapshot-without-replicator",
        symptom="A snapshot of replicated subscriptions fails when its replicator was removed meanwhile.",
        spans=fixed_in("4.0.10"),
        condition=Condition.SYMPTOM,
        seen="The log of the broker has a null pointer in `ReplicatedSubscriptionsController`.",
        remedy="nothing: the next snapshot is taken without it.",
        issues=("apache/pulsar#25266",),
    ),
    BrokerDefect(
        id="snapshot-lost",
        symptom="A snapshot of replicated subscriptions counts as done before its last marker is stored: the position "
        "may not be copied.",
        spans=fixed_in("4.0.13", "4.2.4"),
        condition=Condition.REPLICATED_SUBSCRIPTIONS,
        seen="The subscription on the other cluster stays behind while messages are copied.",
        remedy="let consumers that fail over accept messages twice.",
        issues=("apache/pulsar#26119",),
    ),
    BrokerDefect(
        id="subscription-activity-forgotten",
        symptom="Brokers may forget the activity of a topic, by which they decide to copy the positions of its "
        "replicated subscriptions.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.REPLICATED_SUBSCRIPTIONS,
        seen="The subscription on the other cluster stays behind while messages are copied.",
        remedy="let consumers that fail over accept messages twice.",
        issues=("apache/pulsar#26780",),
    ),
    BrokerDefect(
        id="replicated-subscription-stalls",
        symptom="The positions of replicated subscriptions may not be copied any more.",
        spans=fixed_in("4.0.9"),
        condition=Condition.REPLICATED_SUBSCRIPTIONS,
        seen="The subscription on the other cluster stays behind while messages are copied.",
        remedy="let consumers that fail over accept messages twice.",
        issues=("apache/pulsar#25044",),
    ),
)


BROKER_DEFECTS: tuple[BrokerDefect, ...] = (
    BrokerDefect(
        id="policies-cache-stuck",
        symptom="When the reader of the policies of topics stops, no topic of its namespace can be loaded any more.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.TOPIC_POLICIES,
        seen="Every load of a topic of one namespace ends by time-out, and `__change_events` was moved before.",
        remedy="restart the broker that serves the namespace, where no migrated namespace drains.",
        issues=("apache/pulsar#26025", "apache/pulsar#25294"),
    ),
    BrokerDefect(
        id="policies-cache-cleared",
        symptom="A topic that is loaded right after an unload of its namespace may be refused once.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.SYMPTOM,
        seen="The answer has `Topic policies cache initialization … was aborted because the cached state was cleared`.",
        remedy="load the topic again.",
        issues=("apache/pulsar#26132",),
    ),
    BrokerDefect(
        id="policies-read-too-early",
        symptom="Policies of a topic that are read right after an unload may be an older answer.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.SYMPTOM,
        seen="A policy of a topic reads as not set, and a second later as set.",
        remedy="read them again a few seconds later.",
        issues=("apache/pulsar#26513",),
    ),
    BrokerDefect(
        id="effective-values-wrong",
        symptom="Two policies of a topic are wrong when they are asked for with `applied=true`: the pause by state of "
        "acknowledgments, and the validation of schemas.",
        spans=fixed_in("4.0.14", "4.2.5"),
        condition=Condition.SYMPTOM,
        seen="The two differ from what the namespace and the brokers set.",
        remedy="ask for the policies of each level without `applied`.",
        issues=("apache/pulsar#26472",),
    ),
    BrokerDefect(
        id="redirect-emptiness-inverted",
        symptom="A redirect without an address is accepted, and a flag then ends topics without a place to go.",
        spans=fixed_in("4.0.14", "4.2.5", "5.0.0-M2"),
        condition=Condition.SYMPTOM,
        seen='The stored redirect has no address, or `"empty": true` beside one.',
        remedy="store the whole redirect before a namespace is flagged, and read its addresses back.",
        issues=("apache/pulsar#26473",),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="redirect-waits-for-metadata",
        symptom="A redirect of a client waits for a read of metadata, in a thread that this read needs: when as many "
        "clients of unloaded topics are redirected at once as the broker has cores, it stands still for 30 s.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.SYMPTOM,
        seen="The log has `Failed to get migration cluster URL`, and lookups of all topics end by time-out meanwhile.",
        remedy="restart the applications one after another, or connect them to the new cluster.",
        issues=("apache/pulsar#26051",),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="bundles-replaced",
        symptom="The first affinity of a namespace, or its flag of a migration, replaces the bundles with which it was "
        "created, if no broker has loaded them before.",
        spans=fixed_in("4.0.8"),
        condition=Condition.SYMPTOM,
        seen="A new namespace has one bundle after its anti-affinity group was set, or the default number.",
        remedy="before such a call by hand, ask for the bundle of a topic in the namespace (pulsar-admin topics "
        "bundle-range), as every procedure does.",
        issues=("apache/pulsar#24762", "apache/pulsar#23897"),
        evidence=Evidence.MEASURED,
    ),
    BrokerDefect(
        id="non-persistent-consumer-stays",
        symptom="A consumer that subscribes to a non-persistent topic while it is migrated may not be redirected.",
        spans=fixed_in("4.0.12", "4.2.3"),
        condition=Condition.SYMPTOM,
        signs=("client-missing:non-persistent",),
        seen="A consumer of a non-persistent topic stays on the old cluster and gets nothing.",
        remedy="restart this consumer.",
        issues=("apache/pulsar#26075",),
    ),
    BrokerDefect(
        id="consumer-closed-again",
        symptom="The redirect of a consumer of a non-persistent topic is sent twice, and the topic counts it twice.",
        spans=open_in("4.0", "4.2", "5.0"),
        condition=Condition.SYMPTOM,
        seen="The log of one consumer has two redirects in a row.",
        remedy="restart the consumer if it does not connect.",
        issues=("apache/pulsar#26111",),
    ),
    BrokerDefect(
        id="proxy-answers-502",
        symptom="A proxy may answer 502 to a call with a body that a broker redirects.",
        spans=fixed_in("4.0.11", "4.2.2"),
        condition=Condition.PROXY,
        seen="PUT and POST with a body fail now and then with 502, and GET does not.",
        remedy="use an address of the brokers for admin calls, not one of the proxy.",
        issues=("apache/pulsar#25919",),
    ),
    BrokerDefect(
        id="interceptor-answers-400",
        symptom="With an interceptor, brokers may answer 400 to admin calls with a body.",
        spans=fixed_in("4.0.13", "4.2.4"),
        condition=Condition.INTERCEPTORS,
        seen="The answer has `FAIL_ON_TRAILING_TOKENS`.",
        remedy="check a harmless call with a body before the run, such as setting a policy to what it is.",
        issues=("apache/pulsar#26223", "apache/pulsar#26185"),
    ),
    BrokerDefect(
        id="lookup-mixes-listeners",
        symptom="Lookups of the same topic at the same time may get the address of another listener.",
        spans=fixed_in("4.0.13", "4.2.4"),
        condition=Condition.LISTENERS,
        seen="A client tries an address that only clients of another network reach.",
        remedy="nothing: a client that cannot connect looks up again.",
        issues=("apache/pulsar#26245", "apache/pulsar#26244"),
    ),
    BrokerDefect(
        id="metadata-events-lost",
        symptom="The synchronizer of metadata drops failures of its acknowledgments, and errors do not stop it.",
        spans=fixed_in("4.0.13", "4.2.4"),
        condition=Condition.METADATA_EVENTS,
        seen="Events are applied twice, a minute apart, and the log has no error.",
        remedy="compare the metadata of the clusters, for example with reconcile_policies in mode report.",
        issues=("apache/pulsar#26237", "apache/pulsar#26199", "apache/pulsar#26200"),
    ),
)


DEFECTS: tuple[BrokerDefect, ...] = (*TOPIC_DEFECTS, *REPLICATOR_DEFECTS, *BROKER_DEFECTS)
"""Those of topics and cursors first, then of replicators, then of brokers and their admin API."""

LINES: tuple[str, ...] = ("4.0", "4.2", "5.0")
"""The lines of which the release notes were read."""


def defects_of(version: str) -> tuple[BrokerDefect, ...] | None:
    """The defects that brokers of a version are known to have; None for a line of which nothing was read."""
    return tuple(defect for defect in DEFECTS if defect.has(version)) if line_of(version) in LINES else None


def defects_text(sign: str, versions: Collection[str]) -> str:
    """What is known of brokers of these versions that show a sign, as a sentence; empty if nothing is.

    :param sign: an incident of a drain or a diagnosis of a replicator.
    """
    explaining = [defect for defect in DEFECTS if sign in defect.signs and any(map(defect.has, versions))]
    if not explaining:
        return ""
    having = sorted({version for version in versions for defect in explaining if defect.has(version)})
    names = ", ".join(defect.reference for defect in explaining)
    return f"Brokers of {', '.join(having)} are known for this: {names}."
