"""Fields of the trigger forms that several DAGs share."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

_SCHEMA: Any = "http://json-schema.org/draft-07/schema#"
NAMESPACE_PATTERN = r"^[\w=:.-]+/[\w=:.-]+$"


def setting(default: Any, **schema: Any) -> Param:
    """A field of a form.

    While Airflow serialises a DAG it validates every field twice for each task. Without a named draft it uses the
    newest, which takes five times as long: for a migration 0.3 s of CPU time more (measured).
    """
    return Param(default, **{"$schema": _SCHEMA, **schema})


def connection_param(default: str, title: str, description: str) -> Param:
    """A connection id; the name of its cluster is read from the broker."""
    return setting(default, type="string", minLength=1, title=title, description=description)


def namespaces_param(description: str) -> Param:
    """A list of `tenant/namespace`; the form checks the pattern, the first task checks that the namespace exists."""
    return setting(
        ["acme/orders"],
        type="array",
        items={"type": "string", "pattern": NAMESPACE_PATTERN},
        minItems=1,
        title="Namespaces",
        description=description,
    )


def clusters_param(minimum: int, description: str) -> Param:
    """A list of at least `minimum` connection ids."""
    return setting(
        ["pulsar_blue", "pulsar_green"],
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=minimum,
        title="Clusters",
        description=description,
    )


def selection_param() -> Param:
    """Tenants, namespaces and patterns, as `Selection.parse` reads them."""
    return setting(
        [],
        type="array",
        items={"type": "string", "pattern": r"^(re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"},
        title="Selection",
        description="Tenants (acme), namespaces (acme/orders) or patterns of these (re:acme/.*), one per line. "
        "Empty: all.",
    )


def tie_break_param(condition: str) -> Param:
    """The cluster whose value wins on `condition`, where times do not decide."""
    return setting(
        "smaller",
        type="string",
        enum=["smaller", "larger"],
        title="Tie-break",
        description=f"Which cluster's value wins {condition}: the one with the smaller or the larger name.",
    )


def granularity_param() -> Param:
    """The unit that wins or loses as a whole."""
    return setting(
        "field",
        type="string",
        enum=["field", "document"],
        title="Granularity",
        description="The unit that wins or loses as a whole: a field, or all policies of a resource as in PIP-136.",
    )


def waivers_param() -> Param:
    """Accepted blockers, as `Waiver.parse` reads them."""
    return setting(
        [],
        type="array",
        items={"type": "object"},
        title="Waivers",
        description='Blockers whose risk a person accepts: {"id": …, "resource": …, "who": …, "why": …}.',
    )


def approval_params(subject: str) -> dict[str, Param]:
    """Whether a person approves `subject`, such as "a wave", and how long the answer may take."""
    return {
        "auto_approve": setting(
            False, type="boolean", title="Approve automatically", description=f"Skip the approval of {subject}."
        ),
        "approval_hours": setting(
            24,
            type="integer",
            minimum=1,
            maximum=720,
            title="Time to approve, hours",
            description="Without an answer in this time the run is rejected.",
        ),
    }
