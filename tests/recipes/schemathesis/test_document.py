"""Every operation of the OpenAPI document, with what the document allows and with what it does not.

    scripts/venv target/recipes/schemathesis tests/recipes/schemathesis/requirements.txt
    ATOLL_URL=... ATOLL_API_KEY=... target/recipes/schemathesis/bin/python -m pytest tests/recipes/schemathesis

ATOLL_EXAMPLES sets how many requests are made of each operation (25).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest
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
# Seconds. Longer than any deadline that is sent.
PATIENCE = 20


@pytest.fixture(scope="session")
def api(server: tuple[str, str]) -> Iterator[httpx.Client]:
    """A plain client; whatever sandboxes and keys the session made are gone after it."""
    url, api_key = server
    with httpx.Client(base_url=url, headers={"X-API-Key": api_key}, timeout=60) as client:

        def present() -> tuple[set[str], set[str]]:
            sandboxes = {item["id"] for item in client.get("/v1/sandboxes").json()}
            return sandboxes, {item["prefix"] for item in client.get("/v1/me/tokens").json()["items"]}

        sandboxes, tokens = present()
        yield client
        left_sandboxes, left_tokens = present()
        for sandbox in left_sandboxes - sandboxes:
            client.delete(f"/v1/sandboxes/{sandbox}")
        for token in left_tokens - tokens:
            client.delete(f"/v1/me/tokens/{token}")


@pytest.fixture(scope="session")
def target(api: httpx.Client) -> dict[str, str]:
    """A sandbox and a context that requests can be aimed at."""
    sandbox = api.post("/v1/sandboxes", json={"template": "code-interpreter"}).raise_for_status().json()["id"]
    context = api.post(f"/v1/sandboxes/{sandbox}/repl/sessions").raise_for_status().json()["id"]
    return {"id": sandbox, "sid": context}


@pytest.fixture
def document(server: tuple[str, str]):
    """The document as it is served."""
    schema = schemathesis.openapi.from_url(f"{server[0]}/openapi.json")
    # It would end what the others are aimed at; the clients' own suites cover it.
    return schema.exclude(operation_id="sandbox_delete")


schema = schemathesis.pytest.from_fixture("document")


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
        negative_data_rejection,
    ]
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
        for field, most in (("timeout_seconds", 2), ("timeout_ms", 2000)):
            if isinstance(case.body.get(field), (int, float)) and case.body[field] > most:
                case.body[field] = most
            elif field not in case.body and {"cmd", "argv", "code"} & set(case.body) and not (
                {"timeout_seconds", "timeout_ms"} & set(case.body)
            ):
                case.body[field] = most
