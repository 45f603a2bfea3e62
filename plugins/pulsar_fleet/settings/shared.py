"""Settings that several procedures have (pure)."""

from __future__ import annotations

from pulsar_fleet.settings.setting import Setting, setting

NAMESPACE_PATTERN = r"^[\w=:.-]+/[\w=:.-]+$"


def connection(default: str, title: str, description: str) -> Setting:
    """A connection id; the name of its cluster is read from the broker."""
    return setting(default, type="string", minLength=1, title=title, description=description, is_example=True)


def namespaces(description: str) -> Setting:
    """A list of `tenant/namespace`; the form checks the pattern, the first task checks that the namespace exists."""
    return setting(
        ["acme/orders"],
        is_example=True,
        type="array",
        items={"type": "string", "pattern": NAMESPACE_PATTERN},
        minItems=1,
        title="Namespaces",
        description=description,
    )


def clusters(minimum: int, description: str) -> Setting:
    """A list of at least `minimum` connection ids."""
    return setting(
        ["pulsar_blue", "pulsar_green"],
        is_example=True,
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=minimum,
        title="Clusters",
        description=description,
    )


def selection() -> Setting:
    """Tenants, namespaces and patterns, as `Selection.parse` reads them."""
    return setting(
        [],
        type="array",
        items={"type": "string", "pattern": r"^(re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"},
        title="Selection",
        option="select",
        description="Tenants (acme), namespaces (acme/orders) or patterns of these (re:acme/.*). Empty: all.",
    )


def tie_break(condition: str) -> Setting:
    """The cluster whose value wins on `condition`, where times do not decide."""
    return setting(
        "smaller",
        type="string",
        enum=["smaller", "larger"],
        title="Tie-break",
        description=f"Which cluster's value wins {condition}: the one with the smaller or the larger name.",
    )


def skew() -> Setting:
    """How far apart two times must be so that their order is that of the edits."""
    return setting(
        2.0,
        type="number",
        minimum=0,
        maximum=3600,
        title="Clock skew, seconds",
        description="Times closer than this count as equal, in addition to the measured skew of each cluster's clock.",
    )


def partitioned_topics() -> Setting:
    """Whether partitioned topics are synchronised."""
    return setting(
        True,
        type="boolean",
        title="Partitioned topics",
        description="Create partitioned topics that another cluster has and add partitions, which cannot be undone; "
        "carry their properties and schemas. Costs one call per namespace and two per topic.",
    )


def propagate_deletes() -> Setting:
    """What happens to resources that were deleted on one cluster."""
    return setting(
        "never",
        type="string",
        enum=["never", "approve"],
        title="Propagate deletions",
        description="Tenants, namespaces and partitioned topics that were deleted on another cluster. never: they are "
        "kept and listed as pending. approve: those whose id, or the id of whose batch, is under allowed changes are "
        "deleted, if nobody uses or has changed them. Neither concerns rights and policies that were removed.",
    )


def allow_changes() -> Setting:
    """The ids of what an operator allows."""
    return setting(
        [],
        type="array",
        items={"type": "string"},
        title="Allowed changes",
        option="allow",
        description="Ids of the irreversible or destructive changes, or of batches of deletions, that are allowed, "
        "from the report of a run.",
    )


def granularity() -> Setting:
    """The unit that wins or loses as a whole."""
    return setting(
        "field",
        type="string",
        enum=["field", "document"],
        title="Granularity",
        description="The unit that wins or loses as a whole: a field, or all policies of a resource as in PIP-136.",
    )


def waivers() -> Setting:
    """Accepted blockers, as `Waiver.parse` reads them."""
    return setting(
        [],
        type="array",
        items={"type": "object"},
        title="Waivers",
        option="waiver",
        description='Blockers whose risk a person accepts: {"id": …, "resource": …, "who": …, "why": …}.',
    )


def approval(subject: str) -> dict[str, Setting]:
    """Whether a person approves `subject`, such as "a wave", and how long the answer may take."""
    return {
        "auto_approve": setting(
            False,
            type="boolean",
            title="Approve automatically",
            description=f"Skip the approval of {subject}.",
            only_in_form=True,
        ),
        "approval_hours": setting(
            24,
            type="integer",
            minimum=1,
            maximum=720,
            title="Time to approve, hours",
            description="Without an answer in this time the run is rejected.",
            only_in_form=True,
        ),
    }


def read_limit() -> Setting:
    """The rate limit of reading messages."""
    return setting(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Bytes per second",
        description="Read limit per broker, over all jobs and tasks of the run. Empty: no limit.",
    )
