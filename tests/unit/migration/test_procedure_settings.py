"""Settings that a migration and a failback refuse before any call."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.procedure import Failback, Migration

CLUSTERS = {"blue": "b", "green": "g", "namespaces": ["acme/orders"]}


@pytest.mark.parametrize("strategy", [Strategy.REPOINT, Strategy.WHOLE_CLUSTER])
def test_a_failback_redirects_single_namespaces_only(strategy: Strategy) -> None:
    with pytest.raises(InvalidRequest, match="A failback has no strategy"):
        Failback.validate({**CLUSTERS, "strategy": str(strategy)})


def test_topics_of_a_redirected_cluster_are_not_removed() -> None:
    conf = {**CLUSTERS, "remove_topics_on_blue": True}
    Migration.validate({**conf, "strategy": "redirect"})
    with pytest.raises(InvalidRequest, match="'remove_topics_on_blue' is not possible"):
        Migration.validate({**conf, "strategy": str(Strategy.WHOLE_CLUSTER)})
