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
