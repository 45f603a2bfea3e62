"""The artefact store: snapshots, plans, digests and reports as files, by reference."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from upath import UPath

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, Unavailable
from pulsar_fleet.cluster.json import Json

LEDGER_VARIABLE = "PULSAR_FLEET_LEDGER"
ARTEFACTS_VARIABLE = "PULSAR_FLEET_ARTEFACTS"
OWN_FOLDER = "."
"""The run whose folder is the store's own, for a folder that a person names."""
_MOST_CALLS = 16
_SPACE = (errno.ENOSPC, errno.EDQUOT)


def default_home() -> Path:
    """The folder under AIRFLOW_HOME (or ~/airflow, as Airflow does) that holds the ledger and the artefacts."""
    return Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow").expanduser() / "pulsar-fleet"


def ledger_url() -> str:
    """SQLAlchemy URL of the ledger: PULSAR_FLEET_LEDGER, else a SQLite file under AIRFLOW_HOME."""
    return os.environ.get(LEDGER_VARIABLE) or f"sqlite:///{default_home() / 'ledger.db'}"


def artefacts_url() -> str:
    """URL of the artefact store: PULSAR_FLEET_ARTEFACTS, else a folder under AIRFLOW_HOME."""
    return os.environ.get(ARTEFACTS_VARIABLE) or str(default_home() / "artefacts")


@dataclass(frozen=True, slots=True)
class Reference(Document):
    """The URI and the digest of a stored document: small enough for an XCom.

    :param size: in bytes.
    """

    SCHEMA_VERSION = 1

    uri: str
    sha256: str
    size: int


class Artefacts:
    """Files of runs under one URL (local by default, `s3://…`, `gs://…` with the matching fsspec package)."""

    def __init__(self, root: UPath) -> None:
        self.root = root

    @classmethod
    def open(cls, url: str | None = None) -> Self:
        """Open the store at `url` (default PULSAR_FLEET_ARTEFACTS); an unknown kind of URL is `InvalidRequest`."""
        chosen = url or artefacts_url()
        try:
            root = UPath(chosen)
            root.mkdir(parents=True, exist_ok=True)
        except (ValueError, ImportError, OSError) as error:
            raise InvalidRequest(f"{ARTEFACTS_VARIABLE} {chosen!r} cannot be used: {error}.") from error
        return cls(root)

    def folder(self, run_id: str) -> UPath:
        """The folder of one run; created if it does not exist."""
        folder = self.root / _safe(run_id)
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write(self, run_id: str, name: str, content: bytes) -> Reference:
        """Store a document of a run. A second document of the same name replaces the first, as a retried task must.

        :raises InvalidRequest, Unavailable: the store cannot be written; `Unavailable` if its disk is full.
        """
        path = self.folder(run_id) / name
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(path, Path):
                # A process that is killed while it writes must not leave half a document.
                draft = Path(f"{path}.{os.getpid()}.new")
                try:
                    draft.write_bytes(content)
                    draft.replace(path)
                finally:
                    draft.unlink(missing_ok=True)
            else:
                path.write_bytes(content)
        return Reference(str(path), hashlib.sha256(content).hexdigest(), len(content))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = Unavailable if error.errno in _SPACE else InvalidRequest
            raise kind(
                f"The artefact store {self.root} cannot be written: {error.strerror or error}. Free some space or give "
                f"this process the right to write there, or name another place in {ARTEFACTS_VARIABLE}; then run again."
            ) from error

    def find(self, run_id: str, name: str) -> Reference | None:
        """The document of that name that the run stored earlier; None if there is none."""
        path = self.root / _safe(run_id) / name
        if not path.exists():
            return None
        content = path.read_bytes()
        return Reference(str(path), hashlib.sha256(content).hexdigest(), len(content))

    def has(self, run_id: str) -> bool:
        """Whether the store has a document of a run."""
        folder = self.root / _safe(run_id)
        return folder.exists() and any(True for _ in folder.iterdir())

    def runs_with(self, name: str, run_ids: Collection[str]) -> frozenset[str]:
        """Those of the runs that stored a document of that name; nothing is created or read."""
        names = sorted(run_ids)
        paths = [self.root / _safe(run_id) / name for run_id in names]
        # In a remote store each answer takes tens of milliseconds.
        with ThreadPoolExecutor(_MOST_CALLS) as pool:
            return frozenset(run_id for run_id, exists in zip(names, pool.map(_exists, paths), strict=True) if exists)

    def files(self, run_id: str) -> Iterator[tuple[str, Reference]]:
        """Name → reference of every document of a run, by name."""
        folder = self.root / _safe(run_id)
        if not folder.exists():
            return
        for path in sorted(folder.rglob("*"), key=str):
            if path.is_file():
                content = path.read_bytes()
                name = str(path)[len(str(folder)) + 1 :]
                yield name, Reference(str(path), hashlib.sha256(content).hexdigest(), len(content))

    def write_json(self, run_id: str, name: str, document: Json) -> Reference:
        """Store a JSON document of a run."""
        return self.write(run_id, name, json_bytes(document))

    def read_json(self, reference: Reference) -> Json:
        """The JSON document of the reference; its digest is checked, see `read`."""
        return json.loads(self.read(reference))

    def read(self, reference: Reference) -> bytes:
        """The content of the reference; `NotFound` if it cannot be read, `InvalidRequest` if its digest differs."""
        try:
            content = UPath(reference.uri).read_bytes()
        except OSError as error:
            raise NotFound(f"The artefact {reference.uri} cannot be read: {error}.") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != reference.sha256:
            raise InvalidRequest(
                f"The artefact {reference.uri} was altered after it was written "
                f"(sha256 {digest[:12]}…, expected {reference.sha256[:12]}…); run the step again that wrote it."
            )
        return content


def json_bytes(document: Json) -> bytes:
    """A JSON document as it is stored, readable by people."""
    return json.dumps(document, indent=2, sort_keys=True).encode()


def read_job_result(uri: str, job: str) -> bytes:
    """The result that a Spark job wrote; `NotFound` with the name of the job if it wrote none."""
    try:
        return UPath(uri).read_bytes()
    except OSError as error:
        raise NotFound(f"The {job} left no result at {uri}: {error}. See its log.") from error


def _exists(path: UPath) -> bool:
    return path.exists()


def _safe(run_id: str) -> str:
    # The name of a run may come from a URL: `..` would be the folder above. `.` is the store's own, for `--out`.
    return re.sub(r"^\.(?=.)|[^\w.=@-]+", "_", run_id)
