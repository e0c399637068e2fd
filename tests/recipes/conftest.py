"""A server for the recipes: the one that ATOLL_URL names, or one that is started for this run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "examples/model"), str(Path(__file__).parent)]
from stack import Server, default_state  # noqa: E402


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[str, str]]:
    """URL and key of a server whose `code-interpreter` template is ready."""
    if os.environ.get("ATOLL_URL"):
        yield os.environ["ATOLL_URL"].rstrip("/"), os.environ["ATOLL_API_KEY"]
        return
    started = Server(default_state()).start()
    try:
        yield started.url, started.api_key
    finally:
        started.stop()


@pytest.fixture(autouse=True)
def pandastack_environment(server: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the unmodified clients read to find the server."""
    url, api_key = server
    monkeypatch.setenv("PANDASTACK_API", url)
    monkeypatch.setenv("PANDASTACK_API_KEY", api_key)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
