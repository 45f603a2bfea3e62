"""Every cause that the doctor can name: its severity, what it means, its consequence and its remedy (pure).

`docs/watch_replication.md` has this table. The texts are templates: `{source}`, `{target}`, `{resource}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.preflight.target_limits import LOST, NO_ENCRYPTION, UNLINKED, same_limit
from pulsar_fleet.replication.doctor.model import OWN_CLUSTER, POLICY_TOPIC, Severity

UNEXPLAINED = "-unexplained"
"""Ends the id of a diagnosis that says that no cause was detected."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause; its texts are templates.

    :param automatic: the calls of its remedy can harm nothing.
    :param mutual: it is the same in both directions, and is named once.
    """

    id: str
    severity: Severity
    meaning: str
    consequence: str
    remedy: str
    automatic: bool = False
    mutual: bool = False


FAULT, WARNING, INFO = Severity.FAULT, Severity.WARNING, Severity.INFO

CLUSTER_CAUSES = (
    Cause(
        "target-unreachable",
        FAULT,
        "The target does not answer.",
        "Nothing is replicated to {target}. The backlog on {source} grows, and messages older than a time to live "
        "expire before they are copied.",
        "bring {target} back, or correct its connection if only this tool cannot reach it. Replication continues by "
        "itself, after up to a minute.",
    ),
    Cause(
        "cluster-data-missing",
        FAULT,
        "A list names a cluster that the source does not have among its clusters.",
        "Brokers of {source} cannot load a topic of such a namespace again, so applications lose it at the next unload "
        "(observed, 4.2.4).",
        "register {target} on {source} again, or remove it from the lists.",
        automatic=True,
    ),
    Cause(
        "cluster-data-wrong",
        FAULT,
        "An address in the cluster data leads to another cluster.",
        "What {source} replicates to {target} arrives at the other cluster, or nowhere.",
        "store the right addresses on {source}, then restart its brokers one after another: they keep using the old "
        "addresses until then, also after the topic was unloaded (observed, 4.2.4). What the other cluster received "
        "stays there.",
    ),
    Cause(
        "cluster-data-unreachable",
        FAULT,
        "Nothing answers at an address in the cluster data, while the target itself answers.",
        "Nothing is replicated to {target}.",
        "store the right addresses on {source}, then restart its brokers one after another: they keep using the old "
        "addresses until then, also after the topic was unloaded (observed, 4.2.4).",
    ),
    Cause(
        "tls-required",
        FAULT,
        "The cluster data has an address without TLS where TLS is needed.",
        "Nothing is replicated to {target}.",
        "store addresses with TLS (serviceUrlTls, brokerServiceUrlTls), brokerClientTlsEnabled and the trusted "
        "authorities on {source}, then restart its brokers one after another: they keep the client of the old data "
        "until then. No file is needed where the authority is one of their JVM's: leave that key out.",
    ),
    Cause(
        "tls-untrusted",
        FAULT,
        "The cluster data names no authorities that brokers trust.",
        "Brokers of {source} refuse the certificate of {target}, unless its authority is one of their JVM's.",
        "store brokerClientTrustCertsFilePath in the data of {target} on {source}, a file on its brokers, then restart "
        "them one after another: they keep the client of the old data until then.",
    ),
    Cause(
        "credentials-missing",
        FAULT,
        "The target authenticates clients, and brokers of the source have no credentials for it.",
        "{target} refuses the replicators.",
        "store authenticationPlugin and authenticationParameters in the data of {target} on {source}, then restart its "
        "brokers one after another: they keep the client of the old data until then. The role needs the rights of a "
        "superuser of {target}.",
    ),
    Cause(
        "credentials-refused",
        FAULT,
        "The target does not accept the credentials in the cluster data, or their role may not produce.",
        "{target} refuses the replicators.",
        "store valid credentials of a superuser of {target} in its data on {source}, then restart the brokers of "
        "{source} one after another: they keep the client of the old data until then.",
    ),
)


_CAUSES = (
    *CLUSTER_CAUSES,
    # Namespaces.
    Cause(
        "tenant-not-allowed",
        FAULT,
        "The tenant on the target is missing, or does not allow the target itself, and so the namespace is missing.",
        "Nothing is replicated to {target}.",
        "let the tenant on {target} allow {target}, and create the namespace there.",
    ),
    Cause(
        "namespace-missing",
        FAULT,
        "The target does not have the namespace.",
        "Nothing is replicated to {target}; the broker accepts such a list without a warning.",
        "create the namespace on {target} with the policies of {source} (pulsar-fleet apply does that). With the call "
        "alone it has no retention, and copies without a subscription are deleted.",
    ),
    Cause(
        OWN_CLUSTER,
        FAULT,
        "The list of a namespace does not have the cluster that stores it.",
        "Brokers of {target} delete its topics, with their messages and subscriptions, when they check them, and "
        "refuse every topic of it (observed, 4.2.4).",
        "add {target} to its own list at once. Then look for topics and subscriptions that were deleted, and create "
        "them again; messages are where another cluster has a copy.",
        automatic=True,
    ),
    Cause(
        "own-cluster-not-listed",
        FAULT,
        "The list of a namespace does not have the cluster that stores it; only its allowed clusters do.",
        "{target} serves its topics and begins to replicate none of them; a topic that was replicated before is not "
        "any more when it is loaded again (observed, 4.2.4). If {target} is removed from the allowed clusters too, all "
        "of them are deleted.",
        "add {target} to its own list; messages that are published until then are never copied. If nothing is to be "
        "replicated from {target}, let the list have {target} alone.",
    ),
    Cause(
        "topic-list-without-cluster",
        FAULT,
        "The list of a topic itself, its own or its global one, does not have a cluster that serves the topic.",
        "{target} deletes the topic, with its messages and subscriptions, when the list has effect there (observed, "
        "4.2.4, with a global list).",
        "remove that list where it was stored (DELETE …/replication of the topic; isGlobal=true for a global list) "
        "before replication brings it to {target}. The list of a single cluster needs its own name, a global list the "
        "names of all clusters that serve the topic.",
    ),
    Cause(
        "namespace-migrated",
        FAULT,
        "A migration has flagged the namespace.",
        "Its topics are terminated and redirect their clients; a replicator cannot write to them.",
        "finish or abort the migration; replicate to the new cluster instead.",
    ),
    Cause(
        "one-way",
        WARNING,
        "The namespace on the source lists the target, and the target does not list the source.",
        "What producers on {target} publish is never copied to {source}, also not later.",
        "if both clusters have producers, add {source} to the list on {target}. If {target} only receives, say so: "
        "--receive-only {target}.",
    ),
    Cause(
        "receive-only-sends",
        WARNING,
        "A cluster that is meant only to receive replicates to others.",
        "What producers publish on {source} is copied to {target}.",
        "remove {target} from the list on {source}, which keeps its own name, or do not name {source} as receive-only.",
    ),
    Cause(
        "topic-list-differs",
        WARNING,
        "A topic has a list of its own, by which it is replicated in one direction only.",
        "What producers on {target} publish to the topic is not copied to {source}, also not later.",
        "give the topic the same list on both clusters, each with its own name (POST …/replication of the topic), or "
        "remove the topic's list (DELETE …/replication), so that the list of the namespace is in effect.",
    ),
    Cause(
        "return-stopped",
        FAULT,
        "Applications were moved and can return, and what they write is not replicated back.",
        "What they write stays on {source}: applications that return to {target} miss it.",
        "replicate {resource} from {source} to {target} again (replicate_namespaces): a return then refuses to lose "
        "what was written meanwhile. Or, if the applications are to stay, complete the move (migrate_namespaces).",
    ),
    Cause(
        "removed-cluster-in-tenant",
        WARNING,
        "A tenant allows a cluster that does not exist any more.",
        "No list can name it; changes of the tenant are refused until it is removed.",
        "remove it from the tenant's allowed clusters.",
        automatic=True,
    ),
    Cause(
        "removed-cluster-sends",
        WARNING,
        "A cluster replicates into a topic although no list has it any more.",
        "Its messages still arrive on {target}, and it recreates topics that are deleted there.",
        "remove {target} from the list on {source}.",
    ),
    Cause(
        "inbound-only",
        INFO,
        "A cluster that is not examined replicates into the namespace.",
        "This direction was not examined.",
        "name the cluster {source} too.",
    ),
    Cause(
        "auto-creation-differs",
        WARNING,
        "Both clusters create topics by their first use, with different types or partition counts.",
        "A topic that applications create on both clusters at once is never replicated (PIP-433).",
        "set the same autoTopicCreation policy on both.",
        mutual=True,
    ),
    # Topics.
    Cause(
        "partitions-differ",
        FAULT,
        "The topic has another partition count on the target.",
        "Its replicators never start (PIP-433).",
        "grow the topic on the cluster with fewer partitions. That is for a person: keys move to other partitions, so "
        "let consumers of that cluster read their backlog first, and partitions cannot be removed again.",
        mutual=True,
    ),
    Cause(
        "partitioned-on-one-side",
        FAULT,
        "The topic has partitions on one cluster only.",
        "Its replicators never start (PIP-433).",
        "decide which topic is right. On the cluster of the other one, copy its messages to a topic with a new name "
        "and let its applications use that. Then give it a list of its own cluster alone (POST …/replication of the "
        "topic), since a topic that replicates is not deleted, and delete it a second later (DELETE; one with "
        "partitions at …/partitions), which is refused while a client is connected. Replication creates it as the "
        "right one, within a minute, and sends what waits. What was in the deleted topic and was not copied is lost.",
        mutual=True,
    ),
    Cause(
        "partitions-without-topic",
        FAULT,
        "The target has partitions of the topic, and not the partitioned topic.",
        "Messages arrive in the partitions, and applications on {target} that use the topic read none of them: the "
        "first one creates a topic without partitions (observed, 3.0.7 and 4.0.7).",
        "let no application of {target} use the topic: no call adds it while its partitions exist (observed). Give it "
        "a list of its own cluster alone on {source}, and on {target} if that replicates back (POST …/replication of "
        "the topic). If no application of {target} needs the copies, delete the partitions there (DELETE), which is "
        "refused while a client is connected, and create the topic with as many partitions (PUT …/partitions). Then "
        "replicate this topic with its history (replicate_namespaces with 'topics'), which sends what {source} still "
        "stores.",
    ),
    Cause(
        POLICY_TOPIC,
        WARNING,
        "The topic in which brokers keep the policies of topics, __change_events, has partitions on one cluster only.",
        "Global policies of topics are not replicated between {source} and {target}. Messages of applications are.",
        "set global policies of topics, if there are any, on both clusters. Do not delete this topic: it holds the "
        "policies of all topics of its cluster, and a broker whose topic was deleted did not answer changes of "
        "policies any more (observed, 4.2.4).",
        mutual=True,
    ),
    Cause(
        "topic-missing",
        FAULT,
        "The target does not have the topic, and nothing creates it.",
        "Its replicators never start.",
        "create the topic on {target} with the same partition count.",
        automatic=True,
    ),
    Cause(
        "topic-terminated",
        FAULT,
        "The topic is terminated on the target.",
        "{target} accepts no message of it; the replicator sends the same entries again and again (observed, 4.2.4).",
        "a terminated topic stays so. When its consumers on {target} have read it and are closed, give it a list of "
        "{target} alone there (POST …/replication of the topic), since a topic that replicates is not deleted. A "
        "second later delete it there (DELETE), which is refused while a client is connected, and unload the topic on "
        "{source}, whose replicator does not notice otherwise (observed, 4.2.4). It creates the topic, and sends what "
        "waits. "
        "Subscriptions on {target} were deleted too: create each again, at the first message. Or remove {target} from "
        "the list on {source}: what waits then never arrives.",
    ),
    # Schemas.
    Cause(
        "schema-update-refused",
        FAULT,
        "The target does not allow automatic schema updates, and lacks a schema of the source.",
        "The replicator is connected, and sends nothing after the first message with that schema (PIP-433).",
        "add the schema on {target}, then unload the topic there: the replicator does not try again before that "
        "(observed, 4.2.4).",
        automatic=True,
    ),
    Cause(
        "schema-incompatible",
        FAULT,
        "The target's compatibility strategy refuses a schema of the source.",
        "The replicator is connected, and sends nothing after the first message with that schema.",
        "decide which schemas {target} may hold. Set its strategy accordingly, then unload the topic there: the "
        "replicator does not try again before that (observed, 4.2.4).",
    ),
    Cause(
        "schema-blocked",
        FAULT,
        "A schema held the replicator, the target accepts it by now, and the replicator has not tried again.",
        "The replicator is connected, and sends nothing.",
        "unload the topic on {target}: its clients reconnect once.",
        automatic=True,
    ),
    # Limits.
    Cause(
        "encryption-required",
        FAULT,
        "The target requires encryption of producers, and replicators do not encrypt, also not messages that are "
        "encrypted.",
        UNLINKED,
        NO_ENCRYPTION,
    ),
    Cause(
        "bookies-missing",
        FAULT,
        "A ledger of the topic asks for more bookies than the target has.",
        "The topic can be neither created nor read on {target}, and calls about it time out.",
        "add bookies to {target}, or set a persistence with fewer bookies there (POST …/persistence).",
    ),
    Cause(
        "bookie-group-missing",
        FAULT,
        "The namespace on the target has a bookie affinity to groups that have too few bookies there.",
        "The topic can be neither created nor loaded on {target}.",
        "put bookies of {target} into these groups (pulsar-admin bookies set-bookie-rack --group), only those that no "
        "namespace of another group needs: its ledgers use them no more.",
    ),
    Cause(
        "too-many-topics",
        FAULT,
        "The target lacks the topic, and its namespace has as many topics and partitions as it allows.",
        "No broker creates it there, and its replicators never connect.",
        "raise the limit of the namespace on {target} (POST …/maxTopicsPerNamespace; 0 is no limit), or delete topics "
        "there that nobody needs; brokers connect again within a minute.",
    ),
    Cause(
        "message-refused",
        FAULT,
        "The replicator sends a message again and again, and the target has a limit for messages that the source does "
        "not have.",
        LOST,
        "raise or remove the limit on {target} before producers on {source} publish more to this topic: the replicator "
        "then sends the message, and nothing is lost. Set the same limit on {source}, where producers get an error.",
    ),
    Cause(
        "limit-lower-on-target",
        WARNING,
        "The target has a limit for messages that the source does not have.",
        LOST,
        same_limit("what applications send"),
    ),
    Cause(
        "replicator-rate-limited",
        WARNING,
        "The replicator sends at the limit of its dispatch rate.",
        "The backlog is sent no faster than the limit.",
        "raise or remove the replicator's dispatch rate on {source}, if the limit is not meant.",
    ),
    Cause(
        "target-publish-limited",
        WARNING,
        "The target limits the publish rate, which holds for replicators too.",
        "The backlog is sent no faster than the limit.",
        "raise or remove the publish rate on {target}, if the limit is not meant for replicated messages.",
    ),
    Cause(
        "connection-held-back",
        FAULT,
        "A publish rate on the target holds back another topic that is replicated over the same connection: the target "
        "reads nothing more from it for that time, requests of other replicators included (observed, 4.2.4).",
        "{target} does not get new messages.",
        "raise or remove the publish rate of the other topic on {target}; brokers connect again within a minute.",
    ),
    Cause(
        "target-quota-exceeded",
        FAULT,
        "The backlog quota of the topic is exceeded on the target, by a policy that refuses producers.",
        "{target} refuses the replicator like any producer.",
        "let consumers on {target} read the backlog, or delete subscriptions that nobody needs, or raise the quota; "
        "the broker checks it once a minute.",
    ),
    Cause(
        "backlog-expires",
        FAULT,
        "Messages expire by their time to live before they are replicated.",
        "They never arrive on {target}.",
        "raise or remove the time to live of the namespace on {source} until the replicator has caught up.",
    ),
    # Replicated subscriptions.
    Cause(
        "replicated-subscriptions-unanswered",
        FAULT,
        "A topic has replicated subscriptions; one cluster of its list does not replicate back, and another one does.",
        "No position of such a subscription is copied from {source} to any cluster: a broker copies one when every "
        "cluster of the list has answered (observed, 4.2.4). After a failover, consumers get messages again.",
        "if {target} may send to {source}, add {source} to the list on {target}: it then answers, and positions move "
        "again. Otherwise choose what you need: {target} in the list, or replicated subscriptions of this topic.",
    ),
    Cause(
        "replicated-subscriptions-one-way",
        INFO,
        "A topic has replicated subscriptions, and no cluster of its list replicates back.",
        "No position of such a subscription is copied to {target}: one that moves there has a position of its own.",
        "nothing, if applications do not fail over to {target}; otherwise add {source} to the list on {target}.",
    ),
    Cause(
        "replicated-subscriptions-blocked",
        WARNING,
        "A topic has replicated subscriptions, and a replicator to or from one cluster of its list does not work.",
        "No position of such a subscription is copied from {source} to any cluster until all of the list answer: after "
        "a failover, consumers get messages again.",
        "repair the replicators between {source} and {target}; other diagnoses name what holds them.",
    ),
    # What remains.
    Cause(
        "behind",
        WARNING,
        "The replicator sends, and needs longer than the limit of the request.",
        "{target} has the messages late.",
        "wait if the forecast is acceptable; otherwise look at the load of both clusters and the line between them.",
    ),
    Cause(
        "stalled-unexplained",
        FAULT,
        "The replicator is connected and sends nothing, by none of the other causes.",
        "{target} does not get new messages.",
        "unload the topic on {target}; if that does not help, read the logs of the broker of {source} that serves it.",
        automatic=True,
    ),
    Cause(
        "disconnected-unexplained",
        FAULT,
        "The replicator is not connected, by none of the other causes.",
        "{target} does not get new messages.",
        "read the log of the broker of {source} that serves the topic, and check that brokers of {source} reach the "
        "addresses of {target}, which this tool reaches from another place.",
    ),
    Cause(
        "missing-unexplained",
        FAULT,
        "A list asks for the replicator, and the topic does not have it.",
        "{target} does not get new messages; those that are published until the replicator exists are never copied.",
        "store the namespace's list once more as it is: brokers then create what is missing.",
        automatic=True,
    ),
)
CATALOGUE: Mapping[str, Cause] = {cause.id: cause for cause in _CAUSES}
