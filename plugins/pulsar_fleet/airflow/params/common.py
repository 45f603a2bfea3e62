"""Fields of the trigger forms that several runbooks share."""

from __future__ import annotations

from airflow.sdk import Param

NAMESPACE_PATTERN = r"^[\w=:.-]+/[\w=:.-]+$"


def connection_param(default: str, title: str, description: str) -> Param:
    """A connection id; which cluster it leads to is read from the broker."""
    return Param(default, type="string", minLength=1, title=title, description=description)


def namespaces_param(description: str) -> Param:
    """A list of `tenant/namespace`; the form checks how it is written, the first task whether it exists."""
    return Param(
        ["acme/orders"],
        type="array",
        items={"type": "string", "pattern": NAMESPACE_PATTERN},
        minItems=1,
        title="Namespaces",
        description=description,
    )


def clusters_param(least: int, description: str) -> Param:
    """A list of connection ids, no fewer than `least`."""
    return Param(
        ["pulsar_blue", "pulsar_green"],
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=least,
        title="Clusters",
        description=description,
    )


def selection_param() -> Param:
    """Tenants, namespaces and patterns, as `Selection.parse` reads them."""
    return Param(
        [],
        type="array",
        items={"type": "string", "pattern": r"^(re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"},
        title="Selection",
        description="Tenants (acme), namespaces (acme/orders) or patterns of these (re:acme/.*), one per line. "
        "Empty: everything.",
    )


def tie_break_param(when: str) -> Param:
    """Whose value wins `when` times do not tell."""
    return Param(
        "smaller",
        type="string",
        enum=["smaller", "larger"],
        title="Tie-break",
        description=f"Whose value wins {when}: that of the smaller or the larger name.",
    )


def granularity_param() -> Param:
    """What wins or loses as a whole."""
    return Param(
        "field",
        type="string",
        enum=["field", "document"],
        title="Granularity",
        description="What wins or loses as a whole: a field, or all policies of a resource as in PIP-136.",
    )


def approval_params(what: str) -> dict[str, Param]:
    """Whether a person is asked before `what`, such as "a wave", and how long an answer may take."""
    return {
        "auto_approve": Param(
            False, type="boolean", title="Approve automatically", description=f"Ask nobody before {what}."
        ),
        "approval_hours": Param(
            24,
            type="integer",
            minimum=1,
            maximum=720,
            title="Time to approve, hours",
            description="After that long without an answer it is rejected.",
        ),
    }
