"""The rows of the catalogues hold together, and what is made from them is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.tools.policy_tables import PEER_ROWS, fidelity_page, namespace_counts, topic_counts

from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, CATALOGUE, Kind, Unset
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, TOPIC_CATALOGUE, Form, Scope
from pulsar_fleet.cluster.redaction import is_secret_key

PAGE = Path(__file__).parents[4] / "docs" / "fidelity.md"
ROWS = (*CATALOGUE, *TOPIC_CATALOGUE)


def test_the_page_is_up_to_date() -> None:
    assert fidelity_page(PAGE.read_text()) == PAGE.read_text(), "run: make docs"


def test_a_policy_stands_after_those_that_have_to_be_set_before_it() -> None:
    for rows in (CATALOGUE, TOPIC_CATALOGUE):
        order = [row.field for row in rows]
        assert all(order.index(field) < order.index(row.field) for row in rows for field in row.after)


def test_a_field_stands_in_one_row() -> None:
    assert (len(BY_FIELD), len(TOPIC_BY_FIELD)) == (len(CATALOGUE), len(TOPIC_CATALOGUE))


def test_what_counts_without_a_topic_policy_is_a_policy_of_the_namespace() -> None:
    assert {row.namespace_field for row in TOPIC_CATALOGUE} - {""} <= set(BY_FIELD)


def test_every_secret_of_a_row_is_redacted() -> None:
    assert all(is_secret_key(secret) for row in ROWS for secret in row.secrets)


def test_a_value_that_is_unset_by_its_default_has_one() -> None:
    assert all(row.default is not None for row in CATALOGUE if row.unset is Unset.DEFAULT)


def test_what_is_not_set_by_one_call_has_sections() -> None:
    in_sections = {row.field for row in CATALOGUE if row.kind in (Kind.QUOTAS, Kind.GRANTS)}
    assert in_sections == {row.field for row in CATALOGUE if row.sections}
    assert {row.field for row in TOPIC_CATALOGUE if row.form is Form.QUOTAS} == {"backLogQuotaMap"}


def test_the_rows_count_as_those_of_the_tools_that_they_stand_beside() -> None:
    assert (namespace_counts()[0], topic_counts(Scope.LOCAL)[0]) == PEER_ROWS


@pytest.mark.parametrize(
    ("scope", "uncopied"), [(Scope.LOCAL, {"shadowTopics"}), (Scope.GLOBAL, {"replicationClusters"})]
)
def test_all_policies_of_a_topic_are_carried_but_one(scope: Scope, uncopied: set[str]) -> None:
    fields = {row.field for row in TOPIC_CATALOGUE if row.path and not (scope is Scope.GLOBAL and row.local_only)}
    assert {field for field in fields if not TOPIC_BY_FIELD[field].is_copied(scope)} == uncopied
