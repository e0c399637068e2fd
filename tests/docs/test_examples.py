"""Runs the examples of the documentation, against the server that ATOLL_URL and ATOLL_API_KEY name.

A block of code that follows `<!-- run: shell -->` or `<!-- run: python -->` is run as it stands. It must succeed, and where a
line that prints ends in a comment, that comment must begin with what was printed. `<!-- run: settings -->` is for a config file that
`atoll serve` must take. Any other block of code says why it is not run: `<!-- not run: it installs packages -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs/guide").glob("*.md")), *sorted((TOP / "docs/operate").glob("*.md"))]
BLOCK = re.compile(r"<!-- run: (shell|python|settings) -->\n```\w+\n(.*?)\n```", re.DOTALL)
MARK = re.compile(r"<!-- (run: \w+|not run: .+) -->$")
PRINTED = re.compile(r"^\s*print\(.*\)\s+# (.*)$", re.MULTILINE)


def examples() -> list:
    """Every marked block, named by its page and place."""
    return [
        pytest.param(kind, code, id=f"{page.relative_to(TOP)}-{number}")
        for page in PAGES
        for number, (kind, code) in enumerate(BLOCK.findall(page.read_text()), 1)
    ]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a reader of the page has: `atoll` on PATH, and the server named in the environment."""
    if "ATOLL_URL" not in os.environ:
        pytest.skip("no server: run scripts/flows --recipes, or set ATOLL_URL and ATOLL_API_KEY")
    binary = os.environ.get("ATOLL_BINARY") or str(TOP / "target/release/atoll")
    (tmp_path / "atoll").symlink_to(binary)
    return os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PANDASTACK_API": os.environ["ATOLL_URL"],
        "PANDASTACK_API_KEY": os.environ["ATOLL_API_KEY"],
    }


@pytest.mark.parametrize(("kind", "code"), examples())
def test_an_example_does_what_the_page_says(kind: str, code: str, environment: dict[str, str]):
    command = {
        "shell": ["bash", "-euo", "pipefail", "-c", code],
        "python": [sys.executable, "-c", code],
        "settings": ["atoll", "serve", "--config", "/dev/stdin", "--show-settings"],
    }[kind]
    given = code if kind == "settings" else ""
    done = subprocess.run(command, env=environment, cwd=TOP, input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    promised = PRINTED.findall(code) if kind == "python" else []
    printed = done.stdout.splitlines()[: len(promised)]
    assert len(printed) == len(promised)
    for said, comment in zip(printed, promised, strict=True):
        assert comment.startswith(said), done.stdout


def test_the_pages_have_examples():
    assert len(examples()) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_code_is_run_or_says_why_not(page: Path):
    unmarked = []
    before = ""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if not inside and line != "```" and not MARK.match(before):
                unmarked.append(f"{page.name}:{number}")
            inside = not inside
        before = line
    assert unmarked == []


def test_every_setting_is_documented():
    page = (TOP / "docs/operate/configuration.md").read_text()
    source = (TOP / "crates/server/src/settings.rs").read_text()
    variables = re.findall(r'env = "(ATOLL_\w+)"', source)
    assert len(variables) >= 10
    assert [name for name in variables if f"`{name}`" not in page] == []
