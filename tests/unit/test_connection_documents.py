"""Where applications connect: what a document may say, who has changed it, and clients that stay where they are."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pulsar
import pytest
from fastapi.testclient import TestClient

from pulsar_fleet.airflow.web import clients as route
from pulsar_fleet.clients import store
from pulsar_fleet.clients.document import TLS_PLUGIN, TOKEN_PLUGIN, ConnectionDocument, require_group
from pulsar_fleet.clients.provider import DocumentProvider
from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments, Publication
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import phases

BLUE, GREEN = (ConnectionDocument(service_url=f"pulsar://{name}:6650") for name in ("blue", "green"))


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectionDocuments:
    monkeypatch.setenv(CLIENTS_VARIABLE, str(tmp_path / "clients"))
    return ConnectionDocuments.open()


def publish(documents: ConnectionDocuments, document: ConnectionDocument, expected: int) -> Publication:
    return documents.publish("orders", document, cluster="c", by="ada on ops", why="", expected=expected)


TOKEN = "file:///etc/pulsar/token"


@pytest.mark.parametrize(
    ("document", "refused"),
    [
        (ConnectionDocument(service_url="http://green:8080"), "is not a service URL"),
        (ConnectionDocument(service_url="pulsar://"), "is not a service URL"),
        (ConnectionDocument(service_url="pulsar://g:99999"), "is not a service URL"),
        (ConnectionDocument(service_url="pulsar://a:b:6650"), "is not a service URL"),
        (ConnectionDocument(service_url="pulsar+ssl://[::1]:6651"), "no client of Python takes an IPv6"),
        (ConnectionDocument(service_url="pulsar://green:6650", trust_file="/ca.pem"), "has no TLS"),
        (
            ConnectionDocument(service_url="pulsar://g:6650", auth_plugin=TOKEN_PLUGIN, auth_parameters="token:ey"),
            "contains no secret",
        ),
        (
            ConnectionDocument(
                service_url="pulsar://g:6650", auth_plugin=TLS_PLUGIN, auth_parameters="tlsCertFile:/c.pem"
            ),
            "contains no secret",
        ),
        (ConnectionDocument(service_url="pulsar://g:6650", auth_plugin="T", auth_parameters=TOKEN), "is no class"),
    ],
)
def test_a_document_that_no_client_could_follow_is_refused(document: ConnectionDocument, refused: str) -> None:
    with pytest.raises(InvalidRequest, match=refused):
        document.require_valid()


@pytest.mark.parametrize("url", ["pulsar://a:6650,b:6650", "pulsar+ssl://proxy.example.com:6651", "pulsar://green"])
def test_an_address_that_a_document_may_have_is_one_for_the_client(url: str, tmp_path: Path) -> None:
    document = ConnectionDocument(service_url=url)
    document.require_valid()
    (tmp_path / "orders.json").write_text(json.dumps(document.to_json()))
    info = DocumentProvider((tmp_path / "orders.json").as_uri()).initial_service_info()
    assert (info.service_url, info.use_tls) == (url, document.uses_tls)


@pytest.mark.parametrize("name", ["", "Orders", "../orders", "a/b", "-a", "a" * 64, "a.json"])
def test_a_group_is_a_part_of_an_address(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a name of a group"):
        require_group(name)


def test_versions_are_numbered_and_say_who_published_them(documents: ConnectionDocuments) -> None:
    assert (documents.groups(), documents.published("orders"), documents.newest("orders")) == ([], None, 0)
    publish(documents, BLUE, 0)
    made = publish(documents, GREEN, 1)
    assert (made.version, made.by, made.document) == (2, "ada on ops", GREEN)
    assert documents.published("orders") == made
    assert [one.version for one in documents.history("orders")] == [2, 1]
    assert (documents.groups(), documents.problem("orders"), documents.newest("orders")) == (["orders"], "", 2)


def test_what_clients_read_is_readable_for_any_user(documents: ConnectionDocuments, tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        publish(documents, BLUE, 0)
    finally:
        os.umask(umask)
    root = tmp_path / "clients"
    assert json.loads((root / "orders.json").read_text()) == {"serviceUrl": "pulsar://blue:6650"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    folders = {"clients": 0o755, "orders": 0o755}
    assert modes == {**folders, **dict.fromkeys(("orders.json", "published.json", "000001.json", ".lock"), 0o644)}


def test_who_may_write_into_the_folder_may_publish_for_every_group(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o2775)
    publish(ConnectionDocuments(root), BLUE, 0)
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("orders", "orders/.lock")}
    assert modes == {"orders": 0o2775, "orders/.lock": 0o664}


def test_a_disk_that_is_full_leaves_clients_where_they_are(
    documents: ConnectionDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = publish(documents, BLUE, 0)

    def full(path: Path, document: JsonObject) -> None:
        draft(path, document)
        if path.name == "orders.json":
            raise OSError(28, "No space left on device")

    draft = store._draft
    with monkeypatch.context() as filled:
        filled.setattr(store, "_draft", full)
        with pytest.raises(InvalidRequest, match="No space left on device"):
            publish(documents, GREEN, 1)
    assert (documents.published("orders"), documents.newest("orders"), documents.problem("orders")) == (before, 1, "")
    assert list(Path(documents.folder).rglob("*.new")) == []


def test_of_those_who_publish_at_once_all_but_one_are_refused(documents: ConnectionDocuments) -> None:
    publish(documents, BLUE, 0)
    outcomes: list[str] = []

    def one(document: ConnectionDocument) -> None:
        try:
            publish(documents, document, 1)
        except PreconditionFailed:
            outcomes.append("refused")
        else:
            outcomes.append("published")

    threads = [threading.Thread(target=one, args=(document,)) for document in (GREEN, BLUE, GREEN, BLUE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["published", *["refused"] * 3]
    assert [one.version for one in documents.history("orders")] == [2, 1]
    assert documents.problem("orders") == ""


@pytest.mark.parametrize(("written", "followed"), [(0, "blue"), (1, "blue"), (2, "green"), (3, "green")])
def test_a_process_that_died_moves_nobody_whom_it_did_not_publish(
    documents: ConnectionDocuments, monkeypatch: pytest.MonkeyPatch, written: int, followed: str
) -> None:
    publish(documents, BLUE, 0)
    replace, done = store._replace, list[Path]()

    def dying(path: Path) -> None:
        if len(done) == written:
            raise KeyboardInterrupt
        done.append(path)
        replace(path)

    with monkeypatch.context() as killed:
        killed.setattr(store, "_replace", dying)
        with contextlib.suppress(KeyboardInterrupt):
            publish(documents, GREEN, 1)
    published = documents.published("orders")
    assert published is not None
    assert published.document.service_url == f"pulsar://{followed}:6650"
    # Of four places to die in, two leave something that a person has to see.
    assert bool(documents.problem("orders")) is (written in (1, 2))
    assert publish(documents, GREEN, documents.newest("orders")).document == GREEN
    assert documents.problem("orders") == ""


def test_a_first_version_that_was_not_published_is_published_again(
    documents: ConnectionDocuments, tmp_path: Path
) -> None:
    publish(documents, BLUE, 0)
    (tmp_path / "clients" / "orders" / "published.json").unlink()
    assert "Version 1 of orders was recorded and not published" in documents.problem("orders")
    assert "clients follow none" in documents.problem("orders")
    assert publish(documents, BLUE, 1).version == 2
    assert documents.problem("orders") == ""


def test_damaged_files_keep_nobody_from_moving_the_group(documents: ConnectionDocuments, tmp_path: Path) -> None:
    publish(documents, BLUE, 0)
    folder = tmp_path / "clients" / "orders"
    (folder / "000002.json").write_text("")
    (tmp_path / "clients" / "lost+found").mkdir()
    assert [one.version for one in documents.history("orders")] == [1]
    assert "Version 2 of orders was recorded and not published" in documents.problem("orders")
    (folder / "published.json").write_text("{")
    with pytest.raises(InvalidRequest, match="stay where they are"):
        documents.published("orders")
    assert publish(documents, GREEN, 2).version == 3
    assert (documents.groups(), documents.problem("orders")) == (["orders"], "")


def test_a_record_of_a_later_release_can_be_read(documents: ConnectionDocuments, tmp_path: Path) -> None:
    made = publish(documents, BLUE, 0)
    path = tmp_path / "clients" / "orders" / "published.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "approved_by": "bea"}))
    assert documents.published("orders") == made


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        publish(ConnectionDocuments(tmp_path / "file"), BLUE, 0)


def test_a_bucket_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CLIENTS_VARIABLE, "s3://fleet/clients")
    with pytest.raises(InvalidRequest, match="is not a folder"):
        ConnectionDocuments.open()
    # Neither the Fleet page nor a client that reads fails by it.
    (tmp_path / "token").write_text("t0")
    monkeypatch.setenv(route.TOKEN_VARIABLE, str(tmp_path / "token"))
    answer = TestClient(route.app).get("/orders", headers={"Authorization": "Bearer t0"})
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert (store.followed_groups(ledger), answer.status_code) == ([], 503)
    monkeypatch.setenv(CLIENTS_VARIABLE, (tmp_path / "clients").as_uri())
    publish(ConnectionDocuments.open(), BLUE, 0)
    assert (tmp_path / "clients" / "orders.json").exists()


def test_the_route_serves_what_was_published_to_readers_with_the_token(
    documents: ConnectionDocuments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = TestClient(route.app)
    assert http.get("/orders").status_code == 404
    # Two, while one replaces the other.
    (tmp_path / "token").write_text("t0\nt1 with a space\n")
    monkeypatch.setenv(route.TOKEN_VARIABLE, str(tmp_path / "token"))
    assert http.get("/orders").status_code == 401
    reader = {"Authorization": "Bearer t0"}
    assert http.get("/orders", headers=reader).status_code == 404
    publish(documents, BLUE, 0)
    answer = http.get("/orders", headers=reader)
    assert (answer.json(), answer.headers["ETag"]) == ({"serviceUrl": "pulsar://blue:6650"}, '"1"')
    # An edit by hand is served to nobody here, and shown to whoever looks.
    (tmp_path / "clients" / "orders.json").write_text('{"serviceUrl": "http://elsewhere"}')
    assert http.get("/orders", headers=reader).json() == {"serviceUrl": "pulsar://blue:6650"}
    assert "which is not what was published last" in documents.problem("orders")
    assert http.get("/orders", headers={"Authorization": "Bearer t1 with a space"}).status_code == 200
    (tmp_path / "clients" / "orders" / "published.json").write_text("{")
    broken = http.get("/orders", headers=reader)
    assert (broken.status_code, str(tmp_path) in broken.text) == (503, False)
    assert http.get("/Orders", headers=reader).status_code == 404


def followed(path: Path, texts: list[str], wait: Callable[[], object]) -> list[str]:
    """The addresses to which a provider moves while a document has these contents, one after the other."""
    moved: list[str] = []
    refusing = [True]

    def update(info: pulsar.ServiceInfo) -> None:
        if "twice" in info.service_url and refusing and refusing.pop():
            raise RuntimeError
        moved.append(info.service_url)

    provider = DocumentProvider(path.as_uri(), poll_seconds=0.02)
    provider.initial_service_info()
    provider.initialize(update)
    try:
        for text in texts:
            path.write_text(text)
            wait()
    finally:
        provider.close()
    with pytest.raises(ValueError, match="is of one client"):
        provider.initial_service_info()
    return moved


def test_who_has_read_lately_is_known(
    documents: ConnectionDocuments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("t0")
    monkeypatch.setenv(route.TOKEN_VARIABLE, str(tmp_path / "token"))
    publish(documents, BLUE, 0)
    http = TestClient(route.app, client=("10.0.0.7", 50000), headers={"Authorization": "Bearer t0"})
    assert (documents.readers("orders"), http.get("/orders").status_code) == ([], 200)
    (reader,) = documents.readers("orders")
    mark = tmp_path / "clients" / "orders" / "readers" / reader.host
    os.utime(mark, (1.0, 1.0))
    assert http.get("/orders").status_code == 200
    assert (reader.host, documents.readers("orders")[0].at > 1.0) == ("10.0.0.7", True)
    # Who has not read for a day is forgotten when a new one comes.
    os.utime(mark, (1.0, 1.0))
    for host in ("10.0.0.8", "..", "a/b", "fe80::1"):
        documents.note_reader("orders", host)
    assert {reader.host for reader in documents.readers("orders")} == {"10.0.0.8", "fe80::1"}
    monkeypatch.setattr(store, "_MOST_READERS", 2)
    documents.note_reader("orders", "10.0.0.9")
    assert len(documents.readers("orders")) == 2
    (group,) = store.followed_groups(Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"))
    assert (group.published.group, len(group.readers), group.can_return) == ("orders", 2, False)


def test_a_group_can_return_until_it_has_or_a_migration_has_ended_it(
    documents: ConnectionDocuments, tmp_path: Path
) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    moved, back, again = "migrate_namespaces/1", "return_clients/1", "return_clients/2"
    ledger.start_run(moved, "migrate_namespaces", {})
    ledger.start_run(back, "return_clients", {"run": moved})
    ledger.start_run(again, "return_clients", {"run": back})
    # Of an earlier migration there and back.
    earlier = {"run_id": "migrate_namespaces/0", "namespace": "acme/orders", "phase": "cut_over"}
    with ledger.engine.begin() as connection:
        connection.execute(phases.insert(), [{**earlier, "at": datetime.now(UTC) - timedelta(hours=1)}])

    def can_return() -> tuple[bool, str]:
        (group,) = store.followed_groups(ledger)
        return group.can_return, group.origin

    documents.publish("orders", BLUE, cluster="blue", by="ann", why="", expected=0)
    assert can_return() == (False, "")
    for version, cluster, run, expected in (
        (1, "green", moved, (True, "blue")),
        (2, "blue", back, (False, "green")),
        (3, "green", again, (True, "blue")),
    ):
        document = GREEN if cluster == "green" else BLUE
        names = ("acme/orders",)
        documents.publish(
            "orders", document, cluster=cluster, by="ann", why="", expected=version, namespaces=names, run=run
        )
        assert can_return() == expected
    ledger.enter_phase("migrate_namespaces/2", "acme/orders", "quiesced")
    assert can_return() == (True, "blue")
    ledger.enter_phase("migrate_namespaces/2", "acme/orders", "cut_over")
    assert can_return() == (False, "blue")
    # Another address of the same cluster.
    documents.publish("orders", GREEN, cluster="green", by="ann", why="", expected=4)
    assert can_return() == (False, "blue")


def test_a_client_follows_what_is_valid_and_stays_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text('{"serviceUrl": "pulsar://blue:6650"}')
    wait = threading.Event()
    texts = [
        '{"serviceUrl": "pulsar://green:6650"}',
        '{"serviceUrl": "puls',
        "",
        '{"serviceUrl": "http://green:8080"}',
        '["pulsar://green:6650"]',
        '{"serviceUrl": "pulsar://other:99999"}',
        '{"serviceUrl": "pulsar://other:6650", "authPluginClassName": "org.example.Unknown"}',
        '{"serviceUrl": "pulsar://other:6650", "authPluginClassName": "' + TLS_PLUGIN + '"}',
        '{"serviceUrl": "pulsar+ssl://other:6651", "tlsTrustCertsFilePath": 5}',
        '{"serviceUrl": "pulsar://green:6650"}',
        '{"serviceUrl": "pulsar://twice:6650"}',
        '{"serviceUrl": "pulsar://blue:6650"}',
    ]
    moved = followed(path, texts, lambda: wait.wait(0.15))
    assert moved == [f"pulsar://{name}:6650" for name in ("green", "twice", "blue")]


def test_a_client_that_cannot_read_begins_where_it_was_last(tmp_path: Path) -> None:
    path, copy = tmp_path / "orders.json", tmp_path / "copy.json"
    default, url = "pulsar://blue:6650", path.as_uri()

    def begins(**options: str) -> str:
        return str(DocumentProvider(url, **options).initial_service_info().service_url)

    assert begins(default=default, copy=str(copy)) == default
    with pytest.raises(ValueError, match="does not say where to connect"):
        begins()
    path.write_text('{"serviceUrl": "pulsar://green:6650"}')
    assert begins(default=default, copy=str(copy)) == "pulsar://green:6650"
    path.unlink()
    # A restart must not go back to where the others are no more.
    assert begins(default=default, copy=str(copy)) == "pulsar://green:6650"


def test_a_copy_that_cannot_be_kept_holds_up_no_client_and_is_kept_later(tmp_path: Path) -> None:
    path, copy = tmp_path / "orders.json", tmp_path / "later" / "copy.json"
    path.write_text('{"serviceUrl": "pulsar://green:6650"}')
    provider = DocumentProvider(path.as_uri(), copy=str(copy), poll_seconds=0.02)
    assert provider.initial_service_info().service_url == "pulsar://green:6650"
    provider.initialize(lambda _: None)
    copy.parent.mkdir()
    for _ in range(100):
        if copy.exists():
            break
        threading.Event().wait(0.05)
    provider.close()
    assert json.loads(copy.read_text()) == {"serviceUrl": "pulsar://green:6650"}


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, str], list[str | None]]]:
    """Its address, where it redirects to by path, and the credentials that it got."""
    redirects, got = dict[str, str](), list[str | None]()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers["Authorization"])
            path = self.path.partition("?")[0]
            self.send_response(302 if path in redirects else 200)
            self.send_header("Location", redirects.get(path, ""))
            self.end_headers()
            self.wfile.write(b'{"serviceUrl": "pulsar://green:6650"}')

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Answers) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", redirects, got
        http.shutdown()
        thread.join()


def test_nobody_else_is_asked_where_to_go_and_gets_the_token(
    server: tuple[str, dict[str, str], list[str | None]], caplog: pytest.LogCaptureFixture
) -> None:
    address, redirects, got = server
    redirects["/moved"] = f"{address.replace('127.0.0.1', 'localhost')}/orders"
    redirects["/renamed"] = f"{address}/orders"
    for path, credentials in (("/orders", ["Bearer t0"]), ("/renamed", ["Bearer t0", None])):
        got.clear()
        info = DocumentProvider(f"{address}{path}?signature=s3cret", token=lambda: "t0\n").initial_service_info()
        assert (info.service_url, got) == ("pulsar://green:6650", credentials)
    got.clear()
    with pytest.raises(ValueError, match="redirected to another server"):
        DocumentProvider(f"{address}/moved?signature=s3cret", token=lambda: "t0").initial_service_info()
    assert got == ["Bearer t0"]
    assert "s3cret" not in caplog.text


CLOSED = """
import sys, pulsar
from pulsar_fleet.clients.provider import DocumentProvider

client = pulsar.Client(DocumentProvider(sys.argv[1], poll_seconds=0.05))
client.close()
print("closed")
"""


def test_an_application_that_keeps_no_provider_can_close_its_client(tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text('{"serviceUrl": "pulsar://127.0.0.1:9"}')
    words = [sys.executable, "-c", CLOSED, (tmp_path / "orders.json").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    # The client aborted the process, and ended no producer well.
    assert (done.returncode, "closed" in done.stdout) == (0, True), done.stderr


def test_credentials_of_a_cluster_are_files_on_the_host(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    document = ConnectionDocument(
        service_url="pulsar+ssl://green:6651",
        trust_file="/etc/ca.pem",
        auth_plugin=TOKEN_PLUGIN,
        auth_parameters=f"file://{tmp_path / 'token'}",
    )
    document.require_valid()
    (tmp_path / "orders.json").write_text(json.dumps(document.to_json()))
    info = DocumentProvider((tmp_path / "orders.json").as_uri()).initial_service_info()
    assert isinstance(info, pulsar.ServiceInfo)
    assert (info.service_url, info.use_tls) == ("pulsar+ssl://green:6651", True)
    assert "secret" not in json.dumps(document.to_json())
