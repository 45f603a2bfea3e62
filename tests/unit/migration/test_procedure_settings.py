"""Settings that a migration and a failback refuse before any call."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.procedure import Failback, Migration
from pulsar_fleet.procedures.migration import MIGRATION, validate_migration

CLUSTERS = {"blue": "b", "green": "g", "namespaces": ["acme/orders"]}


@pytest.mark.parametrize("strategy", [Strategy.REPOINT, Strategy.WHOLE_CLUSTER, Strategy.MOVE_CLIENTS])
def test_a_failback_redirects_single_namespaces_only(strategy: Strategy) -> None:
    with pytest.raises(InvalidRequest, match="A failback has no strategy"):
        Failback.validate({**CLUSTERS, "strategy": str(strategy)})


def test_topics_of_a_redirected_cluster_are_not_removed() -> None:
    conf = {**CLUSTERS, "remove_topics_on_blue": True}
    Migration.validate({**conf, "strategy": "redirect"})
    with pytest.raises(InvalidRequest, match="'remove_topics_on_blue' is not possible"):
        Migration.validate({**conf, "strategy": str(Strategy.WHOLE_CLUSTER)})
    with pytest.raises(InvalidRequest, match="applications can return to"):
        Migration.validate({**conf, "strategy": str(Strategy.MOVE_CLIENTS), "group": "orders"})


def test_settings_of_clients_belong_to_their_strategy() -> None:
    others = {name: setting.default for name, setting in MIGRATION.own_settings.items()}
    conf = {**others, **CLUSTERS, "strategy": str(Strategy.MOVE_CLIENTS), "group": "orders"}
    validate_migration({**conf, "service_url": "pulsar://green:6650"})
    validate_migration({**conf, "strategy": "auto"})
    for changed, problem in (
        ({"group": ""}, "do not belong together"),
        ({"strategy": "redirect"}, "do not belong together"),
        ({"group": "../orders"}, "group"),
        ({"service_url": "http://green:8080"}, "http://green:8080"),
        ({"strategy": "auto", "group": "", "trust_file": "/etc/ca.pem"}, "'trust_file' is a setting of the strategy"),
    ):
        with pytest.raises(InvalidRequest, match=problem):
            validate_migration({**conf, **changed})
