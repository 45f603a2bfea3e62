"""A resource that one cluster deleted and another edited: it is left alone until the operator chooses."""

from __future__ import annotations

import pytest

from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import ComparedResource, CompareOptions, compare
from pulsar_fleet.policy_sync.merge.deletion_plan import EXISTENCE, DeletionConflict, Fate
from pulsar_fleet.policy_sync.merge.view import View

ITEM = (Resource.NAMESPACE, "acme/old")
LIMIT = "max_producers_per_topic"
BASE = {ITEM: MergeBase(document={LIMIT: 3}, clusters=("blue", "green"))}
AFTER = {ITEM: MergeBase(document={LIMIT: 5}, clusters=("green",), gone=("blue",))}
RECORDED = DeletionConflict({"blue": None, "green": {LIMIT: 5}})


def compared(
    values: dict[str, int], base: dict[tuple[Resource, str], MergeBase], *recorded: DeletionConflict
) -> ComparedResource:
    views = [
        View(cluster="blue", items={}, provenance={}, unread=frozenset(), topics={}),
        View(cluster="green", items={ITEM: values}, provenance={}, unread=frozenset(), topics={}),
    ]
    (resource,) = compare(views, base, CompareOptions(deletions={ITEM: recorded})).compared
    return resource


def test_an_edit_on_one_side_and_a_deletion_on_the_other_are_a_conflict() -> None:
    resource = compared({LIMIT: 5}, BASE)
    assert (resource.deletion, resource.conflicts, resource.gone) == (RECORDED, (EXISTENCE,), ("blue",))


def test_a_tenant_is_no_exception() -> None:
    tenant = (Resource.TENANT, "acme")
    base = {tenant: MergeBase(document={"adminRoles": []}, clusters=("blue", "green"))}
    views = [
        View(cluster="blue", items={}, provenance={}, unread=frozenset(), topics={}),
        View(cluster="green", items={tenant: {"adminRoles": ["ops"]}}, provenance={}, unread=frozenset(), topics={}),
    ]
    (resource,) = compare(views, base, CompareOptions()).compared
    assert resource.deletion == DeletionConflict({"blue": None, "green": {"adminRoles": ["ops"]}})


def test_a_deletion_of_what_nobody_edited_is_no_conflict() -> None:
    resource = compared({LIMIT: 3}, BASE)
    assert (resource.deletion, resource.conflicts, resource.gone) == (None, (), ("blue",))


def test_the_conflict_stands_when_the_merge_base_has_taken_the_edit() -> None:
    older = DeletionConflict({"blue": None, "green": {LIMIT: 4}}, Fate.DELETED)
    resource = compared({LIMIT: 5}, AFTER, RECORDED, older)
    assert (resource.deletion, resource.conflicts) == (RECORDED, (EXISTENCE,))
    assert RECORDED.text == "deleted on blue, edited on green"


@pytest.mark.parametrize(
    ("fate", "gone", "missing"), [(Fate.KEPT, (), ("blue",)), (Fate.DELETED, ("blue",), ())], ids=["kept", "deleted"]
)
def test_a_choice_decides(fate: Fate, gone: tuple[str, ...], missing: tuple[str, ...]) -> None:
    resource = compared({LIMIT: 5}, AFTER, DeletionConflict(RECORDED.sides, fate))
    assert (resource.gone, resource.missing, resource.conflicts) == (gone, missing, ())


def test_an_edit_after_the_choice_is_asked_for_again() -> None:
    resource = compared({LIMIT: 7}, AFTER, DeletionConflict(RECORDED.sides, Fate.DELETED))
    assert resource.deletion == DeletionConflict({"blue": None, "green": {LIMIT: 7}})
    assert resource.conflicts == (EXISTENCE,)


def test_a_policy_that_was_unset_is_an_edit_too() -> None:
    resource = compared({}, BASE)
    assert resource.deletion == DeletionConflict({"blue": None, "green": {LIMIT: None}})
