"""Which namespaces are meant: by name, tenant, pattern or all; never the brokers' own, never nothing."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.scope import parse_scope, select_namespaces

HELD = tuple(
    NamespaceName.parse(text)
    for text in ("acme/orders", "acme/audit", "acme-2/orders", "public/functions", "pulsar/system", "pulsar/blue")
)
TENANTS = ("acme", "acme-2", "public", "pulsar", "empty")


def chosen(*texts: str) -> list[str]:
    return [str(name) for name in select_namespaces(parse_scope(texts), "blue", TENANTS, HELD)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["acme/orders"], ["acme/orders"]),
        (["acme/orders", "acme/orders"], ["acme/orders"]),
        (["acme"], ["acme/audit", "acme/orders"]),
        (["re:acme/.*"], ["acme/audit", "acme/orders"]),
        (["re:.*/orders"], ["acme/orders", "acme-2/orders"]),
        (["re:acme.*", "acme-2"], ["acme/audit", "acme/orders", "acme-2/orders"]),
        (["all"], ["acme/audit", "acme/orders", "acme-2/orders"]),
        (["re:.*"], ["acme/audit", "acme/orders", "acme-2/orders"]),
    ],
)
def test_namespaces_are_chosen(texts: list[str], expected: list[str]) -> None:
    assert chosen(*texts) == expected


@pytest.mark.parametrize(
    ("texts", "kind", "words"),
    [
        ([], InvalidRequest, "names no namespace"),
        (["  "], InvalidRequest, "names no namespace"),
        (["all", "acme"], InvalidRequest, "'all' is used together with 'acme'"),
        (["acme/order"], NotFound, "did you mean 'acme/orders'?"),
        (["nobody/nowhere"], NotFound, "blue has no 'nobody/nowhere'"),
        (["acme/orders", "zzz"], NotFound, "blue has no 'zzz'"),
        (["re:acm"], NotFound, "blue has no 're:acm'"),
        (["re:("], InvalidRequest, "not a valid regular expression"),
        (["a/b/c"], InvalidRequest, "not a namespace"),
        (["pulsar/system"], InvalidRequest, "belongs to the brokers"),
        (["public/functions"], InvalidRequest, "belongs to the brokers"),
        (["pulsar"], InvalidRequest, "belongs to the brokers"),
        (["re:pulsar/.*"], InvalidRequest, "selects no namespace on blue"),
        (["empty"], InvalidRequest, "selects no namespace on blue"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(texts: list[str], kind: type[FleetError], words: str) -> None:
    with pytest.raises(kind) as error:
        chosen(*texts)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [("public/default", True), ("public", True), ("re:.*", False), ("re:public/.*", False), ("all", False)],
)
def test_only_a_name_takes_the_namespace_that_every_cluster_creates(text: str, named: bool) -> None:
    selection = parse_scope([text])
    assert selection.has(NamespaceName("public", "default"))
    assert selection.names(NamespaceName("public", "default")) is named


def test_thousands_of_unknown_names_are_a_short_sentence() -> None:
    with pytest.raises(NotFound) as error:
        chosen(*(f"acme/unknown-{number}" for number in range(10_000)))
    assert len(str(error.value)) < 300
    assert "and 9,997 more, which 'namespaces' names" in str(error.value)
