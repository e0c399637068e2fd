"""Templates and builds, as far as this release has them."""

from __future__ import annotations

import pytest
from pandastack import BadRequestError, Client, NotFoundError, ServerError


def test_templates_are_listed_and_found_by_name(client: Client):
    templates = {template.name: template for template in client.templates.list()}
    assert {"base", "code-interpreter"} <= set(templates)
    found = client.templates.get("code-interpreter")
    assert found.is_global and found.cpu >= 1 and found.memory_mb >= 128 and found.size_bytes > 0
    with pytest.raises(NotFoundError):
        client.templates.get("no-such-template")


def test_a_template_of_the_server_cannot_be_deleted(client: Client):
    with pytest.raises(BadRequestError, match="cannot be deleted"):
        client.templates.delete("base")


def test_builds_from_images_and_dockerfiles_are_refused_by_name(client: Client):
    with pytest.raises(ServerError, match="image_ref.*not supported"):
        client.templates.register("mine", "registry.example/mine:1")
    with pytest.raises(ServerError, match="dockerfile.*not supported"):
        client.templates.build_from_dockerfile("mine", "FROM debian\n")


def test_builds_are_listed_and_unknown_ones_not_found(client: Client):
    assert isinstance(client.templates.builds(), list)
    with pytest.raises(NotFoundError):
        client.templates.get_build("0123456789abcdef")
    with pytest.raises(NotFoundError):
        list(client.templates.build_logs("0123456789abcdef"))
