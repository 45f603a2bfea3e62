"""The settings of `move_clients` and `return_clients`."""

from __future__ import annotations

from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import approval, connection, namespaces

EXACT = setting(
    False,
    type="boolean",
    title="Deliver nothing twice",
    description="Hold producers while the last positions are carried and until they have read the document: they wait "
    "some seconds, and what is acknowledged is not delivered again. Of an application whose producers and consumers "
    "share a client, acknowledgments that are on their way then are.",
)
# Airflow's form does not start a run while a text that may not be null is empty.
_ARRIVAL = {
    "exact": EXACT,
    "arrival_minutes": setting(
        10,
        type="integer",
        minimum=1,
        maximum=10_080,
        title="Time to arrive, minutes",
        description="How long clients may take to follow the document; after it the run fails and names those that "
        "did not. Nobody is moved back.",
    ),
    "skip_positions": setting(
        False,
        type="boolean",
        title="Skip unknown positions",
        description="Move the clients also where positions of subscriptions could not be carried: what these have "
        "acknowledged may be delivered again, and what they have not may be lost.",
    ),
    "why": setting(
        None, type=["null", "string"], title="Why", description="For those who read the history of the group."
    ),
}

FOLLOWED = {
    "service_url": setting(
        None,
        type=["null", "string"],
        title="Service URL",
        description="What applications use to reach the target, such as a proxy. Empty: as in its last document, "
        "else the addresses of applications of the connection, else its service URL.",
    ),
    "trust_file": setting(
        None,
        type=["null", "string"],
        title="Trust file",
        description="PEM file with the trusted certificates, on the hosts of the applications. Empty: as in the last "
        "document for the target.",
    ),
    "auth_plugin": setting(
        None,
        type=["null", "string"],
        title="Authentication plugin",
        description="Class of Java's client. Empty: as in the last document for the target.",
    ),
    "auth_parameters": setting(
        None,
        type=["null", "string"],
        title="Authentication parameters",
        description="Of that class: a file on the hosts of the applications, file:///etc/pulsar/token.",
    ),
    "restart_java": setting(
        False,
        type="boolean",
        title="Java clients are restarted",
        description="You restart the Java clients of the group: the document may then change TLS, and add or leave out "
        "a trust file or credentials.",
    ),
    "unverified": setting(
        False,
        type="boolean",
        title="Address not verified",
        description="Do not ask the service URL whether the target answers there: applications reach it, and this tool "
        "does not.",
    ),
}
"""The document that leads applications to a cluster."""

_ACCEPTED = {
    "accept_shared_clients": setting(
        False,
        type="boolean",
        title="Accept shared clients",
        description="Go on although clients use topics of other namespaces too, or although that is unknown: if such a "
        "client follows the document, it moves with all its topics.",
    ),
    "accept_readers": setting(
        False,
        type="boolean",
        title="Accept readers",
        description="Go on although readers are connected: only they have their position, and on the other cluster "
        "they skip messages, or get them again.",
    ),
}

OF_MIGRATION = {**FOLLOWED, **_ACCEPTED, "exact": EXACT}
"""What a migration asks that moves the clients of a group."""

SETTINGS = {
    "origin": connection("pulsar_blue", "From", "The cluster that the clients leave."),
    "target": connection("pulsar_green", "To", "The cluster that they move to."),
    "group": setting(
        "orders",
        is_example=True,
        type="string",
        minLength=1,
        title="Group",
        description="The applications that move, which follow the connection document of this name.",
    ),
    "namespaces": namespaces("All namespaces that the group uses. One per line."),
    **FOLLOWED,
    "accept_lost": setting(
        False,
        type="boolean",
        title="Accept lost messages",
        description="Go on although the target has no copy of messages that nobody has read.",
    ),
    **_ACCEPTED,
    "accept_transactions": setting(
        False,
        type="boolean",
        title="Accept transactions",
        description="Go on although applications use transactions, or although that is unknown: one that is open when "
        "clients move fails, and may hide what is stored behind it from consumers.",
    ),
    **_ARRIVAL,
    **approval("the move"),
    "dry_run": setting(False, type="boolean", title="Dry run", description="Stop after the check; change nothing."),
}

RETURN_SETTINGS = {
    "run": setting(
        "move_clients/RUN",
        is_example=True,
        is_argument=True,
        type="string",
        pattern=r"^[^/]+/.+$",
        title="Run",
        description="The move to take back, as the Fleet page and the reports name it: DAG/run id.",
    ),
    **_ARRIVAL,
}
