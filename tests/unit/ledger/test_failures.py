"""A ledger or an artefact store that cannot be used: one sentence with the place, the cause and what to do."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, Unavailable
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.event_store import EventStore
from pulsar_fleet.ledger.ledger import Ledger, database_problem
from pulsar_fleet.ledger.tables import runs

ONE_SENTENCE = re.compile(r"[^\n]+[^.\s]\.")


def sentence(error: BaseException) -> str:
    text = str(error)
    assert ONE_SENTENCE.fullmatch(text), text
    assert "Traceback" not in text
    return text


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("This is a text, and long enough for the header of a database. " * 20)
    with pytest.raises(InvalidRequest) as caught:
        Ledger.open(f"sqlite:///{file}")
    text = sentence(caught.value)
    assert text.startswith(f"The ledger sqlite:///{file} cannot be used: it is not a database: name another file in ")
    assert "PULSAR_FLEET_LEDGER" in text
    assert file.read_text().startswith("This is a text")


def test_a_ledger_that_is_read_only_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    Ledger.open(f"sqlite:///{file}")
    ledger = Ledger.open(f"sqlite:///file:{file}?mode=ro&uri=true")
    with pytest.raises(InvalidRequest, match="cannot be used: it is read-only: give this process the right") as caught:
        ledger.start_run("run", "plan", {})
    sentence(caught.value)


def test_a_new_ledger_in_a_place_that_is_read_only_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    sqlite3.connect(file).close()
    with pytest.raises(InvalidRequest, match="it is read-only"):
        Ledger.open(f"sqlite:///file:{file}?mode=ro&uri=true")
    # The URI is no path below the working folder.
    assert not Path("file:").exists()


def test_a_full_disk_is_named_and_can_pass(tmp_path: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")

    @sa.event.listens_for(ledger.engine, "connect")
    def fill(connection: sqlite3.Connection, _: object) -> None:
        # SQLite then answers as on a full disk.
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(Unavailable, match="the disk is full: free some space, then run again") as caught:
        ledger.start_run("run", "plan", {"text": "x" * 1_000_000})
    sentence(caught.value)


def test_a_folder_instead_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="it cannot be opened") as caught:
        Ledger.open(f"sqlite:///{tmp_path}")
    sentence(caught.value)


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=r"The ledger's folder .* cannot be created: Not a directory"):
        Ledger.open(f"sqlite:///{tmp_path / 'file' / 'more' / 'ledger.db'}")


def test_a_ledger_of_a_newer_release_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Ledger.open(url).engine.begin() as connection:
        connection.exec_driver_sql("UPDATE fleet_ledger_version SET version_num = '9999'")
    with pytest.raises(InvalidRequest, match="was written by another release of this package"):
        Ledger.open(url)


def test_a_password_in_the_url_is_not_repeated() -> None:
    with pytest.raises(Unavailable) as caught:
        Ledger.open("postgresql://fleet:s3cret@127.0.0.1:1/fleet")
    assert "s3cret" not in sentence(caught.value)


def test_a_violated_constraint_is_still_seen_by_the_stores(records: Path) -> None:
    ledger = Ledger.open()
    with pytest.raises(sa.exc.IntegrityError), ledger.engine.begin() as connection:
        connection.execute(runs.insert().values(run_id=None))
    assert EventStore(ledger, "events", "blue").load() == {}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('could not extend file "base/1/2": No space left on device', Unavailable),
        ("cannot execute INSERT in a read-only transaction", InvalidRequest),
        ("permission denied for table fleet_run", InvalidRequest),
    ],
)
def test_what_postgresql_says_is_recognised(message: str, kind: type[FleetError]) -> None:
    assert isinstance(database_problem("postgresql://db/fleet", RuntimeError(message)), kind)


def test_an_artefact_store_on_a_full_disk_is_named(tmp_path: Path) -> None:
    store = Artefacts.open(str(tmp_path))
    (store.folder("run") / f"plan.json.{os.getpid()}.new").symlink_to("/dev/full")
    with pytest.raises(Unavailable, match=f"The artefact store {tmp_path} cannot be written: No space left on device"):
        store.write("run", "plan.json", b"{}")
    assert store.find("run", "plan.json") is None


def test_an_artefact_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    store = Artefacts.open(str(tmp_path))
    (tmp_path / "run").touch()
    with pytest.raises(InvalidRequest, match="cannot be written: File exists"):
        store.write("run", "plan.json", b"{}")


@pytest.mark.parametrize("run_id", ["..", ".", "nobody/run"])
def test_a_search_neither_leaves_the_store_nor_makes_a_folder(run_id: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("outside")
    store = Artefacts.open(str(tmp_path / "store"))
    assert store.find(run_id, "report.html") is None
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("nothing://", "'nothing' is no database of SQLAlchemy"),
        ("nothing://user:secret@host/db", "'nothing' is no database of SQLAlchemy"),
        ("postgresql+nodriver://user:secret@host/db", "'postgresql+nodriver' is no database of SQLAlchemy"),
        ("postgresql://user:secret@host:port/db", "its port is not a number"),
        ("ledger.db", "it is not a URL"),
    ],
)
def test_a_url_of_no_database_is_named_without_its_password(url: str, cause: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Ledger.open(url)
    text = sentence(caught.value)
    assert cause in text
    assert "set PULSAR_FLEET_LEDGER to sqlite:///…/ledger.db or postgresql://…" in text
    assert "secret" not in text
