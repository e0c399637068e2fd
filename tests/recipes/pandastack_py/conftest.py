"""Fixtures for the unmodified `pandastack` SDK against our server."""

from __future__ import annotations

from collections.abc import Iterator

import pandastack
import pytest


@pytest.fixture(scope="session")
def client(server: tuple[str, str]) -> pandastack.Client:
    """A client that was told its server and key."""
    url, api_key = server
    return pandastack.Client(api_url=url, api_key=api_key)


@pytest.fixture(scope="session")
def sandbox(client: pandastack.Client) -> Iterator[pandastack.Sandbox]:
    """One sandbox for every test that leaves it as it was."""
    made = client.sandboxes.create(ttl_seconds=1800, metadata={"made-by": "recipes"})
    yield made
    made.kill()


@pytest.fixture
def context(sandbox: pandastack.Sandbox) -> Iterator[pandastack.CodeContext]:
    """A fresh code context."""
    with sandbox.create_code_context() as made:
        yield made


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than half a minute")
