"""Sandboxes, their lease, and who may use them."""

from __future__ import annotations

import uuid

import pandastack
import pytest
from pandastack import AuthError, BadRequestError, Client, NotFoundError, Sandbox, ServerError


def test_a_sandbox_lives_from_create_to_kill():
    sandbox = Sandbox.create(template="base", ttl_seconds=600, metadata={"tool": "recipe"})
    try:
        assert str(uuid.UUID(sandbox.id)) == sandbox.id
        assert (sandbox.template, sandbox.status, sandbox.persistent) == ("base", "running", False)
        assert sandbox.metadata["tool"] == "recipe"
        assert sandbox.cpu >= 1 and sandbox.memory_mb >= 128
        assert isinstance(sandbox.boot_ms, int) and sandbox.boot_mode and sandbox.created_at
        assert Sandbox.get(sandbox.id).id == sandbox.id
        assert sandbox.refresh().status == "running"
        assert sandbox.id in {found.id for found in Sandbox.list()}
    finally:
        sandbox.kill()
    with pytest.raises(NotFoundError):
        Sandbox.get(sandbox.id)
    assert sandbox.id not in {found.id for found in Sandbox.list()}


def test_the_newest_sandbox_is_listed_first(client: Client):
    with client.sandboxes.create(template="base") as older, client.sandboxes.create(template="base") as newer:
        ids = [found.id for found in client.sandboxes.list()]
        assert ids.index(newer.id) < ids.index(older.id)


def test_with_ends_a_sandbox_unless_it_is_persistent(client: Client):
    with client.sandboxes.create(template="base") as sandbox:
        pass
    with pytest.raises(NotFoundError):
        client.sandboxes.get(sandbox.id)
    with client.sandboxes.create(template="base", persistent=True) as kept:
        fetched = client.sandboxes.get(kept.id)
        assert fetched.persistent, "a fetched persistent sandbox would be killed by with"
    assert client.sandboxes.get(kept.id).status == "running"
    client.sandboxes.delete(kept.id)


def test_the_lease_is_read_and_changed(sandbox: Sandbox):
    before = sandbox.lifecycle()
    assert set(before) == {"ttl_seconds", "persistent", "idle_seconds"}
    try:
        assert sandbox.set_ttl(1234)["ttl_seconds"] == 1234
        assert sandbox.set_persistent(True)["persistent"] is True
        assert sandbox.lifecycle()["ttl_seconds"] == 1234
        with pytest.raises(BadRequestError):
            sandbox.set_ttl(-1)
        assert sandbox.set_ttl(0)["ttl_seconds"] == 0
    finally:
        sandbox.set_persistent(False)
        sandbox.set_ttl(before["ttl_seconds"])


def test_waking_what_is_awake_changes_nothing(sandbox: Sandbox):
    assert sandbox.wake() is None
    assert sandbox.resume() is None
    assert sandbox.refresh().status == "running"


@pytest.mark.parametrize("call", ["snapshot", "pause", "hibernate", "fork"])
def test_what_this_release_lacks_is_a_clear_server_error(sandbox: Sandbox, call: str):
    with pytest.raises(ServerError, match="not supported"):
        getattr(sandbox, call)()
    assert sandbox.refresh().status == "running"


def test_lists_of_what_this_release_lacks_are_refused_too(client: Client, sandbox: Sandbox):
    for call in (client.volumes.list, client.snapshots.list, sandbox.preview_urls, lambda: sandbox.fork_tree(2)):
        with pytest.raises(ServerError, match="not supported"):
            call()
    with pytest.raises(ServerError, match="not supported"):
        client.sandboxes.create(from_snapshot="snap")


def test_an_unknown_template_is_a_bad_request_that_names_it(client: Client):
    with pytest.raises(BadRequestError, match="not in the template catalog"):
        client.sandboxes.create(template="no-such-template")
    with pytest.raises(BadRequestError):
        client.sandboxes.create(template="base", ttl_seconds=-5)
    with pytest.raises(BadRequestError):
        client.sandboxes.create(template="base", metadata={"a": 1})


def test_the_default_template_of_the_other_client_is_an_alias(client: Client):
    with client.sandboxes.create(template="ubuntu-24.04") as sandbox:
        assert sandbox.template == "base"


def test_unknown_ids_are_not_found(client: Client):
    for strange in (str(uuid.uuid4()), "no-such-sandbox", "..%2f..%2fkeys"):
        with pytest.raises(NotFoundError):
            client.sandboxes.get(strange)
        with pytest.raises(NotFoundError):
            client.sandboxes.delete(strange)


def test_a_wrong_key_is_an_auth_error(server: tuple[str, str]):
    stranger = Client(api_url=server[0], api_key="atl_" + "0" * 40)
    with pytest.raises(AuthError, match="unauthorized"):
        stranger.sandboxes.list()
    with pytest.raises(AuthError):
        stranger.sandboxes.create()


def test_the_base_address_may_end_in_the_version(server: tuple[str, str]):
    assert Client(api_url=f"{server[0]}/v1", api_key=server[1]).me()["current_org"]


def test_the_caller_is_told_who_it_is(client: Client):
    me = client.me()
    assert me["user_id"] and me["current_org"] == me["orgs"][0]["id"] and me["auth_method"]


def test_tokens_are_made_listed_and_revoked(client: Client, server: tuple[str, str]):
    token = client.tokens.create("recipe", expires_in_days=1)
    assert token.token and token.token.startswith(token.prefix) and token.name == "recipe"
    assert token.prefix in {listed.prefix for listed in client.tokens.list()}
    assert all(listed.token is None for listed in client.tokens.list())
    other = pandastack.Client(api_url=server[0], api_key=token.token)
    assert isinstance(other.sandboxes.list(), list)
    client.tokens.revoke(token.prefix)
    with pytest.raises(AuthError):
        other.sandboxes.list()
    with pytest.raises(NotFoundError):
        client.tokens.revoke(token.prefix)
