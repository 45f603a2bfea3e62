"""A run's configuration, checked before anything else happens: Airflow accepts unknown keys in silence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from pulsar_fleet.cluster.errors import Rejected
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName


def refuse_unknown_settings(conf: Mapping[str, Json] | None, known: Iterable[str]) -> None:
    """Refuse a configuration key that the DAG does not have, naming the one that was probably meant.

    :param known: the DAG's own params; those of the task's context hold the unknown keys too.
    """
    names = sorted(known)
    for key in conf or {}:
        if key not in names:
            meant = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {meant[0]!r}?" if meant else f"known are {', '.join(names)}."
            raise Rejected(f"Unknown setting {key!r} in the run's configuration; {hint}")


def parse_namespaces(texts: Sequence[str]) -> tuple[NamespaceName, ...]:
    """The namespaces of a configuration, in its order, each once; a wrong one is `Rejected`."""
    if not texts:
        raise Rejected("The run's configuration names no namespace: set 'namespaces', for example [\"acme/orders\"].")
    return tuple(dict.fromkeys(NamespaceName.parse(text) for text in texts))


def refuse_same_cluster(source: str, target: str, names: tuple[str, str]) -> None:
    """Refuse two connections that lead to the same cluster (equal cluster names)."""
    if names[0] == names[1]:
        raise Rejected(
            f"Connections {source!r} and {target!r} both lead to cluster {names[0]!r}; give two different clusters."
        )
