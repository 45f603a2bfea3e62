"""Notes about resources of a cluster that were not read, and why: they are unknown, not absent (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Problem(StrEnum):
    """Why a resource is not in a snapshot."""

    DELETED = "deleted"
    """It was deleted between listing and reading: no problem."""
    UNREADABLE = "unreadable"
    """It exists and could not be read: the snapshot is incomplete."""
    NOT_OFFERED = "not offered"
    """The cluster does not run the feature, so there are no such resources: no problem."""
    HIDDEN = "hidden"
    """Our role may not read it: it may exist or not, and nothing is concluded from that."""


class Area(StrEnum):
    """Resources that a role may read or set only together; the `resource` of a `Note` about a hidden area."""

    TENANTS = "list of tenants"
    CLUSTERS = "cluster data"
    BROKERS = "broker configuration"
    RESOURCE_GROUPS = "resource groups"
    BOOKIE_AFFINITY = "bookie affinity of namespaces"
    ISOLATION = "isolation policies and failure domains"
    CLIENTS = "connected clients"


# No tenant has a space in its name, so that these name no tenant.
BROKERS = "list of brokers"
CLUSTERS = "list of clusters"
FUNCTIONS = "functions of every namespace"
PACKAGES = "packages of every namespace"
NAMESPACES_OF = "namespaces of "
PARTITIONED_TOPICS_OF = "partitioned topics of "
SCHEMAS_OF = "schemas of "
SUBSCRIPTIONS_OF = "subscriptions of "
SUBSCRIPTION_PROPERTIES_OF = "subscription properties of "
SCALABLE_TOPICS_OF = "scalable topics of "
TOPIC_POLICIES_OF = "topic policies of "
NO_SERVICE_URL = "has no broker service URL"


@dataclass(frozen=True, slots=True)
class Note:
    """A resource that is not in the snapshot, and why.

    :param resource: a name, a kind such as `BROKERS`, or a part of a resource, such as `SCHEMAS_OF` and a topic.
    """

    resource: str
    problem: str
    detail: str

    @property
    def concerns_brokers(self) -> bool:
        """Whether settings of the brokers were not read: no procedure copies them."""
        return self.resource == BROKERS or self.resource.startswith("broker ")


DELETE_AGAIN = (
    # Brokers of 5.0.0-M1 delete a namespace that has only scalable topics, whose messages have no namespace then.
    "read the cluster again when the deletion has ended. If it does not end, and the namespace has no scalable topics "
    "(Pulsar 5.0), delete it there again, without force: brokers refuse that while it has other topics"
)
_MOST_NAMED = 5
_REMEDIES = (
    (
        "in clusters list",
        "add this cluster's name to the namespace's replication clusters if it is to serve it, or leave it out of the "
        "selection",
    ),
    (
        "may not do this",
        "give the role of this connection the right, for a tenant by its adminRoles, or use the token of a superuser",
    ),
    ("cannot log in to each other", "follow that sentence, then read the cluster again"),
    (NO_SERVICE_URL, "follow that sentence, then read the cluster again"),
    ("Namespace is deleted", DELETE_AGAIN),
    ("cannot be addressed over HTTP", "recreate it under another name, or leave it out of the selection"),
)
"""Part of the detail of a note → what to do."""


_ANY_OTHER = "correct the cause that the broker names, which its log may describe, or leave it out of the selection"


def remedy_for(note: Note, otherwise: str = _ANY_OTHER) -> str:
    """What to do about an unreadable resource, in a sentence without a full stop; `otherwise` for any other cause."""
    return next((remedy for part, remedy in _REMEDIES if part in note.detail), otherwise)


def unread_text(cluster: str, notes: Sequence[Note]) -> str:
    """What could not be read on a cluster and what to do, by name, as one paragraph."""
    rest = len(notes) - _MOST_NAMED
    named = " ".join(f"{note.resource}: {note.detail} Do: {remedy_for(note)}." for note in notes[:_MOST_NAMED])
    more = f" {rest:,} more are in the table 'notes' of the snapshot." if rest > 0 else ""
    return f"{len(notes):,} of the resources of {cluster} could not be read: {named}{more}"
