"""The settings of `migrate_namespaces`."""

from __future__ import annotations

from airflow.sdk import Param

from pulsar_fleet.airflow.params import approval_params, connection_param

TEXTS = {"type": "string"}
SCOPE_PATTERN = r"^(all|re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"

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
    "strategy": Param(
        "auto",
        type="string",
        enum=["auto", "redirect", "replicate_then_switch"],
        title="Strategy",
        description="auto takes redirect where every subscription drains by itself and nothing is retained, "
        "else replicate_then_switch.",
    ),
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
    "waivers": Param(
        [],
        type="array",
        items={"type": "object"},
        title="Waivers",
        description='Blockers that somebody takes on: {"id": …, "resource": …, "who": …, "why": …}.',
    ),
    **approval_params("a wave"),
    "quiet_seconds": Param(
        1.0,
        type="number",
        minimum=0.5,
        maximum=5,
        title="Quiet before the switch, seconds",
        description="Writers are held to 1 message/s for so long before topics are closed; longer only adds silence.",
    ),
    "drain_timeout_minutes": Param(
        60,
        type="integer",
        minimum=1,
        maximum=10080,
        title="Time for copying and draining, minutes",
        description="After that long without an end the run fails and says what is missing.",
    ),
    "delete_inactive_topics_on_blue": Param(
        False,
        type="boolean",
        title="Let blue delete inactive topics again",
        description="Leave off while consumers that subscribe by pattern have not been restarted against green: "
        "they lose a topic on green when blue deletes it.",
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
