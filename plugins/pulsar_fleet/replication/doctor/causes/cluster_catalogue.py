"""The causes that lie between two clusters, as rows of the catalogue (pure)."""

from __future__ import annotations

from pulsar_fleet.replication.doctor.causes.cause import Cause
from pulsar_fleet.replication.doctor.model import Severity

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
