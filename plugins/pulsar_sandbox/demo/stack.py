"""Airflow as one local process group: SQLite, the real scheduler, triggerer and UI."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import tenacity

from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_sandbox.sandbox.guarded import GuardedProcess

REPOSITORY = Path(__file__).parents[3]
STATE_FILE = "airflow.json"
START_SECONDS = 300
CALL_SECONDS = 60
_ASKS = ("awaiting_input", "deferred")
"""The states of a task that waits for an answer; the second one up to Airflow 3.2."""
_SCHEDULER_SEES_SECONDS = 3


class AirflowStack:
    """`airflow standalone` in a folder, under guard: it dies with its owner unless released.

    :param folder: becomes AIRFLOW_HOME; state of an earlier run in it is kept.
    :param url: where UI and REST API answer; only on this machine, without a login.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._process = GuardedProcess(folder / "process")
        self.api = httpx.Client(base_url=url, timeout=CALL_SECONDS)
        self._released = False

    @classmethod
    def launch(
        cls, folder: Path, *, settings: Mapping[str, str] | None = None, programs: Path | None = None
    ) -> AirflowStack:
        """Start it without waiting; `wait_ready` waits. `PreconditionFailed` if the repository's DAG folder is not
        there.

        :param programs: the folder of the command `airflow`, where it is another than this environment's.
        """
        if not (REPOSITORY / "dags").is_dir():
            raise PreconditionFailed(
                f"There is no dags/ in {str(REPOSITORY)!r}: run this from a checkout of the repository."
            )
        folder.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        stack = cls(folder, f"http://127.0.0.1:{port}")
        (folder / STATE_FILE).write_text(json.dumps({"url": stack.url}))
        programs = programs or Path(sys.executable).parent
        os.environ.update(_environment(folder, port, programs) | dict(settings or {}))
        airflow = shutil.which("airflow", path=str(programs)) or "airflow"
        stack._process.start([airflow, "standalone"])
        return stack

    @classmethod
    def attach(cls, folder: Path) -> AirflowStack:
        """Use the one that another process left running in `folder`; `NotFound` if there is none."""
        state = folder / STATE_FILE
        if not state.exists():
            raise NotFound(f"No Airflow was started in {str(folder)!r}.")
        return cls(folder, json.loads(state.read_text())["url"])

    def release(self) -> None:
        """Let it outlive this process: `close` leaves it running then."""
        self._process.release()
        self._released = True

    def close(self) -> None:
        """End it, unless it was released."""
        if not self._released:
            self.stop()

    def stop(self) -> None:
        """End all of it. A second call does nothing."""
        self.api.close()
        self._process.stop()

    def wait_ready(self, *dag_ids: str) -> None:
        """Wait until the API answers and the DAGs are known; `PreconditionFailed` with the end of the log if it does
        not.
        """
        self._until(lambda: self._healthy(), "answer")
        self.api.headers["Authorization"] = f"Bearer {self._token()}"
        self._until(lambda: all(self._knows(dag_id) for dag_id in dag_ids), f"know {', '.join(dag_ids)}")

    def put_connection(self, conn_id: str, **fields: Any) -> None:
        """Create or replace a connection."""
        body = {"connection_id": conn_id, **fields}
        answer = self.api.post("/api/v2/connections", json=body)
        if answer.status_code == httpx.codes.CONFLICT:
            answer = self.api.patch(f"/api/v2/connections/{conn_id}", json=body)
        answer.raise_for_status()

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run; returns its id. A configuration that the form would not take is `PreconditionFailed`."""
        self.api.patch(f"/api/v2/dags/{dag_id}", json={"is_paused": False}).raise_for_status()
        answer = self.api.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"conf": dict(conf), "logical_date": None})
        if answer.status_code == httpx.codes.BAD_REQUEST:
            raise PreconditionFailed(
                f"Airflow did not take the configuration of {dag_id}: {answer.json().get('detail')}"
            )
        answer.raise_for_status()
        return str(answer.json()["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """`queued`, `running`, `success` or `failed`."""
        return str(self._get(f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """All runs of a DAG, the oldest first, as the REST API describes them."""
        runs: list[dict[str, Any]] = []
        while page := self._get(f"/dags/{dag_id}/dagRuns?order_by=id&offset={len(runs)}")["dag_runs"]:
            runs += page
        return runs

    def last_run(self, dag_id: str) -> str:
        """Id of the newest run; `NotFound` if there is none."""
        runs = self._get(f"/dags/{dag_id}/dagRuns?order_by=-id&limit=1")["dag_runs"]
        if not runs:
            raise NotFound(f"{dag_id} has not run in {str(self.folder)!r}.")
        return str(runs[0]["dag_run_id"])

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The run's task instances, as the REST API describes them."""
        instances: list[dict[str, Any]] = self._get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return instances

    def result(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """What a task returned."""
        return self._get(
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value?stringify=false"
        )["value"]

    def report(self, dag_id: str, run_id: str) -> str:
        """The report that a run has stored."""
        artefacts = Artefacts.open(str(self.folder / "pulsar-fleet" / "artefacts"))
        return (artefacts.folder(f"{dag_id}/{run_id}") / "report.md").read_text()

    def links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        """Name → URL of the links that the page of a task shows; None: it shows none."""
        links: dict[str, str | None] = self._get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links")[
            "extra_links"
        ]
        return links

    def question(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any] | None:
        """The question of a task to a person, with `subject` and `body`; None while there is none."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/hitlDetails"
        questions = [
            detail for detail in self._get(path)["hitl_details"] if detail["task_instance"]["task_id"] == task_id
        ]
        return next((detail for detail in questions if detail["task_instance"]["state"] in _ASKS), None)

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer as a person does in the UI, some seconds after the question.

        Airflow 3.3 forgets an answer that comes before its scheduler has seen that the task paused, and asks again.
        """
        time.sleep(_SCHEDULER_SEES_SECONDS)
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        self.api.patch(path, json={"chosen_options": [option], "params_input": {}}).raise_for_status()

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """A task's log as text, the message of an exception behind its line."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}?map_index={map_index}"
        entries = self._get(path)["content"]
        return "\n".join(_log_line(entry) for entry in entries)

    # On a busy machine no answer may come in a minute, or a connection is reset: a read is repeated.
    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(httpx.TransportError), stop=tenacity.stop_after_attempt(5), reraise=True
    )
    def _get(self, path: str) -> Any:
        answer = self.api.get(f"/api/v2{path}")
        answer.raise_for_status()
        return answer.json()

    def _healthy(self) -> bool:
        try:
            health = self.api.get("/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        return all(health.get(part, {}).get("status") == "healthy" for part in ("scheduler", "metadatabase"))

    def _token(self) -> str:
        answer = self.api.get("/auth/token")
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def _knows(self, dag_id: str) -> bool:
        return self.api.get(f"/api/v2/dags/{dag_id}").status_code == httpx.codes.OK

    def _until(self, holds: Callable[[], bool], verb: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not holds():
            if time.monotonic() > deadline or self._process.pid is None:
                raise PreconditionFailed(
                    f"Airflow in {str(self.folder)!r} did not {verb} within {START_SECONDS} s. "
                    f"The end of its log:\n{self._process.last_words()}"
                )
            time.sleep(0.5)


def _environment(folder: Path, port: int, programs: Path) -> dict[str, str]:
    return {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "6",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": _kept_secret(folder / "jwt.secret"),
        # Two dozen short tasks follow each other, and each waits for half of this, in seconds.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        # Without it a finished task is noticed up to 5 s late, and one that resumes at once can be marked failed.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "15",
        # The files do not change while it runs, and parsing them again and again costs a fifth of a core.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        # A parse that is killed on a busy machine must not deactivate the DAG in the middle of a run.
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "180",
        "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": "3600",
        "AIRFLOW__LOGGING__NAMESPACE_LEVELS": "httpx=WARNING alembic=WARNING",
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }


def _log_line(entry: str | dict[str, Any]) -> str:
    if isinstance(entry, str):
        return entry
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or []]
    return " ".join([str(entry.get("event", entry)), *errors])


def _kept_secret(file: Path) -> str:
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(32))
    return file.read_text()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
