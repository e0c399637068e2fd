"""What the scripts promise of keys and logs, without a server."""

from __future__ import annotations

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from stack import ClientConfig, Server, ServerFailed  # noqa: E402

URL = "http://127.0.0.1:8080"


def mode(path: Path) -> int:
    """Permission bits."""
    return path.stat().st_mode & 0o777


class Folder(unittest.TestCase):
    """Each test has a folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class ConfigFile(Folder):
    def kept(self) -> ClientConfig:
        return ClientConfig.below(self.folder)

    def test_a_key_is_kept_for_its_owner_when_nothing_is_there(self) -> None:
        self.assertTrue(self.kept().takes(URL, "atl_1"))
        kept = self.kept()
        self.assertEqual((kept.url, kept.api_key), (URL, "atl_1"))
        self.assertEqual((mode(kept.path), mode(kept.path.parent)), (0o600, 0o700))
        self.assertTrue(kept.takes(URL, "atl_1"))

    def test_another_server_or_key_is_never_replaced(self) -> None:
        self.kept().takes(URL, "atl_1")
        self.assertFalse(self.kept().takes("http://127.0.0.1:1", "atl_2"))
        self.assertFalse(self.kept().takes(URL, "atl_2"))
        self.assertEqual(json.loads(self.kept().path.read_text())["api_key"], "atl_1")

    def test_a_file_that_is_no_config_is_left_alone(self) -> None:
        path = self.kept().path
        path.parent.mkdir()
        for text in ("", "[]", "{", '{"url": null}'):
            path.write_text(text)
            self.assertEqual(self.kept().api_key, "")
            self.assertFalse(self.kept().takes(URL, "atl_1"))
            self.assertEqual(path.read_text(), text)


class Log(Folder):
    def test_only_its_owner_reads_a_log_even_one_from_before(self) -> None:
        server = Server(self.folder)
        server.log.touch(0o644)
        server.open_log().close()
        self.assertEqual(mode(server.log), 0o600)

    def test_complaints_are_the_warnings_and_errors_of_this_run(self) -> None:
        (self.folder / "server.log").write_text("2026-01-01T00:00:00Z ERROR a: of an earlier run\n")
        server = Server(self.folder)
        lines = [
            "2026-01-01T00:00:00Z  INFO a: no ERROR b",
            "2026-01-01T00:00:00Z  WARN a: one",
            "2026-01-01T00:00:00Z ERROR a: two",
            '{"timestamp":"x","level":"ERROR","fields":{}}',
        ]
        with server.open_log() as log:
            log.write("\n".join(lines).encode())
        self.assertEqual(server.complaints(), lines[1:])

    def test_a_folder_without_a_key_is_told(self) -> None:
        with self.assertRaisesRegex(ServerFailed, "ATOLL_STATE_DIR"):
            _ = Server(self.folder).api_key


if __name__ == "__main__":
    unittest.main()
