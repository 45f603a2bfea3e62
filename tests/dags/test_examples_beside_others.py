"""The examples that use this provider beside others run against real clusters, as its page shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.dags.test_examples import NAMESPACE, cluster, consumed, examples
from tests.support.dag_runs import states
from tests.support.mail_server import mail_server

from pulsar_fleet.airflow import PulsarHook
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.messages.clients.consume import create_subscription
from pulsar_fleet.messages.clients.stream import Subscription

pytestmark = pytest.mark.onboarding
__all__ = ["cluster", "examples"]

INVOICES = f"persistent://{NAMESPACE}/invoices"


@pytest.mark.long
def test_a_spark_job_reads_a_topic_and_no_argument_has_the_token(
    examples: Any, cluster: ClusterConnection, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    extra = {"service_url": cluster.service_url}
    document = {"conn_type": "pulsar", "host": cluster.admin_url, "password": "e30.secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_DEFAULT", json.dumps(document))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    PulsarHook("pulsar_default").publish(INVOICES, [{"content": str(i), "key": "acme"} for i in range(3)])
    run = examples.dags["example_pulsar_spark_submit"].test()
    assert states(run) == {"count": "success"}
    printed = capfd.readouterr().out
    assert "acme: 3 messages" in printed
    (command,) = [line for line in printed.splitlines() if "Spark-Submit cmd" in line]
    assert INVOICES in command
    # Airflow masks the token as three asterisks wherever it is printed.
    assert "***" not in command
    assert "e30.secret" not in printed


def test_a_backlog_starts_another_dag_once(examples: Any, cluster: ClusterConnection) -> None:
    create_subscription(cluster, Subscription(topic=INVOICES, name="warehouse", initial_position="earliest"))
    PulsarHook("pulsar_default").publish(INVOICES, ["work"])
    run = examples.dags["example_pulsar_trigger_dag_run"].test()
    assert states(run) == {"has_work": "success", "start": "success"}
    (conf,) = started("example_pulsar_publish_and_consume", run.run_id)
    assert conf == {"backlog": f"{INVOICES}, subscription warehouse: backlog 1 entry"}


def started(dag_id: str, run_id: str) -> list[Any]:
    """The configurations of the runs of a DAG with this id."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(DagRun.conf).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        return list(session.scalars(query))


def test_a_file_that_arrives_is_published_and_seen_by_the_admin_api(
    examples: Any, cluster: ClusterConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FS_DEFAULT", json.dumps({"conn_type": "fs"}))
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    dag = examples.dags["example_pulsar_other_sensors"]
    run = dag.test(run_conf={"file": str(tmp_path / "lines.txt")})
    assert states(run) == {"arrived": "success", "publish": "success", "stored": "success"}
    assert [message.content for message in consumed(cluster, f"persistent://{NAMESPACE}/lines")] == [b"one", b"two"]


def test_a_failure_is_told_by_mail_and_by_a_topic(
    examples: Any, cluster: ClusterConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mail_server() as (port, mails):
        extra = {"disable_ssl": True, "disable_tls": True}
        document = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(document))
        run = examples.dags["example_pulsar_two_notifiers"].test()
    assert states(run) == {"succeed": "success", "fail": "failed"}
    assert [mail["Subject"] for mail in mails] == ["fail of example_pulsar_two_notifiers failed"]
    texts = [json.loads(message.content)["text"] for message in consumed(cluster, f"persistent://{NAMESPACE}/failures")]
    assert texts == ["succeed succeeded", "fail failed"]
