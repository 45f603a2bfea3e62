"""The settings of `migrate_namespaces` and `fail_back_namespaces`."""

from __future__ import annotations

from airflow.sdk import Param

from pulsar_fleet.airflow.params.common import approval_params, connection_param, namespaces_param

TEXTS = {"type": "string"}
SCOPE_PATTERN = r"^(all|re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"


def _strategy(more: str = "") -> Param:
    """How namespaces move, or `auto`; `more` ends what is said of it."""
    return Param(
        "auto",
        type="string",
        enum=["auto", "redirect", "replicate_then_switch"],
        title="Strategy",
        description="auto takes redirect where every subscription drains by itself and nothing is retained, "
        f"else replicate_then_switch{more}.",
    )


WAIVERS = {
    "waivers": Param(
        [],
        type="array",
        items={"type": "object"},
        title="Waivers",
        description='Blockers that somebody takes on: {"id": …, "resource": …, "who": …, "why": …}.',
    ),
}
QUIET = {
    "quiesce_seconds": Param(
        0.2,
        type="number",
        minimum=0.2,
        maximum=5,
        title="Quiet before the switch, seconds",
        description="Writers are held to 1 message/s for so long, and until nothing is in flight, before topics are "
        "closed; longer only adds silence.",
    ),
}
PROOF = {
    "proof_max_age_minutes": Param(
        240,
        type="integer",
        minimum=1,
        maximum=10080,
        title="Age of the proof, minutes",
        description="The switch refuses when what it relies on was proven longer ago, or anything changed since.",
    ),
}
DRAIN = {
    "drain_timeout_minutes": Param(
        60,
        type="integer",
        minimum=1,
        maximum=10080,
        title="Time for copying and draining, minutes",
        description="After that long without an end the run fails and says what is missing.",
    ),
}

PARAMS = {
    "blue": connection_param("pulsar_blue", "Blue", "Connection of the cluster that the namespaces leave."),
    "green": connection_param("pulsar_green", "Green", "Connection of the cluster that they move to."),
    "namespaces": Param(
        ["acme/orders"],
        type="array",
        items={"type": "string", "pattern": SCOPE_PATTERN},
        minItems=1,
        title="Namespaces",
        description="What to move, one per line: tenant/namespace, a tenant, re: and a pattern of the whole "
        "tenant/namespace, or all. What an earlier run has moved is left out.",
    ),
    "strategy": _strategy(),
    "wave_namespaces": Param(
        20, type="integer", minimum=1, maximum=500, title="Namespaces in a wave", description="At most so many."
    ),
    "wave_topics": Param(
        1000,
        type="integer",
        minimum=1,
        title="Topics in a wave",
        description="At most so many; a namespace with more is a wave by itself.",
    ),
    "next_waves": Param(
        True,
        type="boolean",
        title="Go on with the next wave",
        description="Start a run for the next wave, with an approval of its own, when this one has ended well.",
    ),
    "change_windows": Param(
        [],
        type="array",
        items=TEXTS,
        title="Change windows",
        description="When topics may be switched, such as Mon-Thu 09:00-16:00 Europe/Berlin, or two ISO times with a "
        "slash between; the run waits for one. Empty means always.",
    ),
    "freeze_windows": Param(
        [],
        type="array",
        items=TEXTS,
        title="Freezes",
        description="When nothing may be switched, written as change windows are.",
    ),
    **WAIVERS,
    **approval_params("a wave"),
    **QUIET,
    "individually_acknowledged": Param(
        "carry",
        type="string",
        enum=["carry", "redeliver"],
        title="Messages acknowledged one by one",
        description="With replicate_then_switch, behind a message that is not acknowledged: carry acknowledges them on "
        "green too, redeliver lets them come again; the text of the approval says how many.",
    ),
    **PROOF,
    **DRAIN,
    "delete_inactive_topics_on_blue": Param(
        False,
        type="boolean",
        title="Let blue delete inactive topics again",
        description="Leave off while consumers that subscribe by pattern have not been restarted against green: "
        "they lose a topic on green when blue deletes it.",
    ),
    "remove_topics_on_blue": Param(
        False,
        type="boolean",
        title="Remove topics on blue",
        description="At the end, remove the closed topics on blue. Leave off until every application names green: "
        "consumers by pattern lose a topic with it, and nobody comes to a partitioned one through blue any more.",
    ),
    "dry_run": Param(
        False, type="boolean", title="Dry run", description="Evaluate every gate, show the waves, change nothing."
    ),
    "continues": Param(
        None,
        type=["null", "string"],
        title="Continues",
        description="The run whose plan of waves this one carries on; set by that run itself.",
    ),
    "wave": Param(
        1, type="integer", minimum=1, title="Wave", description="Number of the wave to move; with continues only."
    ),
}

RETURN_PARAMS = {
    "blue": connection_param("pulsar_blue", "Blue", "Connection of the cluster that the namespaces return to."),
    "green": connection_param("pulsar_green", "Green", "Connection of the cluster that they are on."),
    "namespaces": namespaces_param("What to bring back, one tenant/namespace per line."),
    "strategy": _strategy(", which brings back what was written on green"),
    "allow_removal": Param(
        False,
        type="boolean",
        title="Allow removal of closed topics",
        description="Let the topics that the migration closed on blue be removed with what they still store. "
        "Without it the check ends with their list.",
    ),
    **WAIVERS,
    **QUIET,
    **PROOF,
    **DRAIN,
    "dry_run": Param(False, type="boolean", title="Dry run", description="Evaluate every interlock, change nothing."),
}
