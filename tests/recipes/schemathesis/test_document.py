"""Every operation of the OpenAPI document, with what the document allows and with what it does not.

    scripts/venv target/recipes/schemathesis tests/recipes/schemathesis/requirements.txt
    ATOLL_URL=... ATOLL_API_KEY=... target/recipes/schemathesis/bin/python -m pytest tests/recipes/schemathesis

ATOLL_EXAMPLES sets how many requests are made of each operation (25).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

# Known and deliberate (501), full for now (503, 507), a deadline that was asked for (504).
DELIBERATE = {501, 503, 504, 507}
# A route that asks for an upgrade says so before it looks at anything else.
WEBSOCKET = 426
# Seconds. Longer than any deadline that is sent.
PATIENCE = 20


class Api:
    """Plain calls with the key."""

    def __init__(self, url: str, api_key: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.session.headers["X-API-Key"] = api_key

    def call(self, method: str, path: str, **more: Any) -> Any:
        response = self.session.request(method, f"{self.url}/v1{path}", timeout=60, **more)
        response.raise_for_status()
        return response.json() if response.content else None

    def present(self) -> tuple[set[str], set[str]]:
        """Sandboxes and keys that there are."""
        sandboxes = {item["id"] for item in self.call("GET", "/sandboxes")}
        return sandboxes, {item["prefix"] for item in self.call("GET", "/me/tokens")["items"]}


@pytest.fixture(scope="session")
def api(server: tuple[str, str]) -> Iterator[Api]:
    """Whatever sandboxes and keys the session made are gone after it."""
    api = Api(*server)
    sandboxes, tokens = api.present()
    yield api
    left_sandboxes, left_tokens = api.present()
    for sandbox in left_sandboxes - sandboxes:
        api.call("DELETE", f"/sandboxes/{sandbox}")
    for token in left_tokens - tokens:
        api.call("DELETE", f"/me/tokens/{token}")


@pytest.fixture(scope="session")
def target(api: Api) -> dict[str, str]:
    """A sandbox and a context that requests can be aimed at."""
    sandbox = api.call("POST", "/sandboxes", json={"template": "code-interpreter"})["id"]
    context = api.call("POST", f"/sandboxes/{sandbox}/repl/sessions")["id"]
    return {"id": sandbox, "sid": context}


@pytest.fixture
def document(server: tuple[str, str]):
    """The document as it is served."""
    return schemathesis.openapi.from_url(f"{server[0]}/openapi.json")


# It would end what the others are aimed at; the clients' own suites cover it.
schema = schemathesis.pytest.from_fixture("document").exclude(operation_id="sandbox_delete")


@schema.parametrize()
@settings(
    max_examples=int(os.environ.get("ATOLL_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_the_document_says(case, server: tuple[str, str], target: dict[str, str]):
    aim(case, target)
    response = case.call(headers={"X-API-Key": server[1]}, timeout=PATIENCE)
    checks = [
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    if response.status_code != WEBSOCKET:
        checks.append(negative_data_rejection)
    if response.status_code not in DELIBERATE:
        checks.append(not_a_server_error)
    case.validate_response(response, checks=checks)
    assert response.headers["x-request-id"]
    if response.status_code >= 400 and case.method.upper() != "HEAD":
        assert isinstance(response.json().get("error", ""), str)


def aim(case, target: dict[str, str]) -> None:
    """Points well-formed ids at things that exist, and keeps a request from waiting for what never comes."""
    for name, value in target.items():
        if name in (case.path_parameters or {}) and len(str(case.path_parameters[name])) == len(value):
            case.path_parameters[name] = value
    if isinstance(case.query, dict):
        case.query.pop("follow", None)
    if isinstance(case.body, dict):
        for field, most, limit in (("timeout_seconds", 2, 86_400), ("timeout_ms", 2000, 86_400_000)):
            value = case.body.get(field)
            if isinstance(value, (int, float)) and most < value <= limit:
                case.body[field] = most
        if {"cmd", "argv", "code"} & set(case.body) and not {"timeout_seconds", "timeout_ms"} & set(case.body):
            case.body["timeout_seconds"] = 2
