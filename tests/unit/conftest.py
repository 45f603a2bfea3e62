"""Databases for the tests of the ledger and of what reads it: SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support import postgresql


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Callable[[], str]]:
    """Creates an empty database and returns its URL."""
    with postgresql.server() as new_database:
        yield new_database


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Creates an empty database and returns its URL."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_server")
    return lambda: f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}"
