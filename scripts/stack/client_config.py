"""The command line's config file: which server it talks to, and with which key."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class ClientConfig:
    """`atoll/config.json` below a config folder; empty texts for what it does not hold or cannot be read."""

    path: Path
    url: str = ""
    api_key: str = ""

    @classmethod
    def below(cls, home: Path) -> ClientConfig:
        """The file of the config folder `home`."""
        path = home / "atoll/config.json"
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError):
            return cls(path)
        kept = kept if isinstance(kept, dict) else {}
        return cls(path, str(kept.get("url") or ""), str(kept.get("api_key") or ""))

    @classmethod
    def of_user(cls) -> ClientConfig:
        """The file that `atoll` itself reads for this user."""
        return cls.below(Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"))

    def takes(self, url: str, api_key: str) -> bool:
        """Whether `url` and `api_key` are what `atoll` uses from now on.

        They are written when nothing is there yet. A file that names another server or another key is never changed.
        """
        if (self.url, self.api_key) == (url, api_key):
            return True
        if self.path.exists():
            return False
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A temporary file has mode 0600 from the start.
        with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as draft:
            json.dump({"url": url, "api_key": api_key}, draft, indent=2)
            draft.write("\n")
        os.replace(draft.name, self.path)
        return True
