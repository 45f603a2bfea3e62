"""The log of pulsar-client: one per process, whoever opens its first client."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from threading import Barrier, Thread

from pulsar_fleet.cluster.message_client import _ClientLog


def _open_from_threads(logs: list[_ClientLog], threads: int) -> None:
    start = Barrier(threads)

    def take_all() -> None:
        for log in logs:
            start.wait()
            log.open()

    workers = [Thread(target=take_all) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def test_first_clients_opened_by_many_threads_at_once_share_one_open_file() -> None:
    logs = [_ClientLog() for _ in range(300)]
    for log in logs:
        log.path.touch()
    with warnings.catch_warnings(record=True) as dropped:
        warnings.simplefilter("always", ResourceWarning)
        _open_from_threads(logs, threads=8)
        gc.collect()
    streams = [log._stream for log in logs]
    for stream in streams:
        assert stream is not None
        stream.close()
    assert not [log.path for log in logs if log.path.exists()]
    assert not [str(warning.message) for warning in dropped if "pulsar-client-" in str(warning.message)]


def test_a_process_that_opened_a_client_ends_without_an_open_file() -> None:
    program = (
        'from pulsar_fleet.cluster import message_client; message_client.new_client("pulsar://localhost:1").close()'
    )
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pulsar-client-" not in ended.stderr
