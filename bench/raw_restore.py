"""`runsc restore` by hand: the same image and root directory as the engine's, a bundle of our own, nothing else.

Flags and bundle are read off a sandbox that the server has made, so that both do the same work whatever the engine's
settings are. What must not be shared (container id, runsc's own folder, cgroup, overlay) is replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from stack.host import command_line, processes


class RawRestore:
    """Restores of the image that the sandbox `model` came from."""

    def __init__(self, state: Path, model: str) -> None:
        self._state = state.resolve()
        self._model = model
        self._folder = Path(tempfile.mkdtemp(prefix="atoll-bench-", dir=self._state))
        self._count = 0
        self._flags, boot = self._flags_of(model)
        self._bundle = json.loads((Path(boot["bundle"]) / "config.json").read_text())
        self._image = self._image_of()

    def _flags_of(self, model: str) -> tuple[dict[str, str], dict[str, str]]:
        """Global flags and those of `boot`, from the command line of the sandbox's kernel."""
        for pid in processes():
            arguments = command_line(pid)
            if "boot" in arguments and any(model in argument for argument in arguments):
                at = arguments.index("boot")
                return flags(arguments[1:at]), flags(arguments[at + 1 :])
        raise RuntimeError(f"no runsc process serves sandbox {model}")
