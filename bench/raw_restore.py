"""`runsc restore` by hand: the same image and root directory as the engine's, a bundle of our own, nothing else.

Flags and bundle are read off a sandbox that the server has made, so that both do the same work whatever the engine's
settings are. What must not be shared (container id, runsc's own folder, overlay) is replaced, and there is no cgroup.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from stack.host import command_line, processes

# Flags that name places or records of the one container that they were read off.
PLACES = ("root", "log", "debug-log", "panic-log", "coverage-report", "log-fd", "debug-log-fd", "overlay2")


class RawRestore:
    """Restores of the image that the sandbox `model` came from. Used as a `with`; leaves nothing."""

    def __init__(self, state: Path, model: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-", dir=state))
        self._runsc = shutil.which("runsc") or "runsc"
        self._count = 0
        flags, bundle = flags_of(model)
        overlay = self._folder / "overlay"
        overlay.mkdir()
        self._flags = [
            *(f"--{name}={value}" for name, value in flags.items() if name not in PLACES),
            f"--root={self._folder / 'runsc'}",
            f"--overlay2=root:dir={overlay}",
            "--ignore-cgroups=true",
        ]
        specification = json.loads((bundle / "config.json").read_text())
        specification.get("linux", {}).pop("cgroupsPath", None)
        self._bundle = self._folder / "bundle"
        self._bundle.mkdir()
        (self._bundle / "config.json").write_text(json.dumps(specification))
        self._image = image_in(state)

    def __enter__(self) -> RawRestore:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def sample(self) -> float:
        """Milliseconds of one `restore -detach`: it returns when the restored process runs."""
        self._count += 1
        name = f"raw-{os.getpid()}-{self._count}"
        # The restored agent talks on these; it gets pipes as the engine gives it FIFOs.
        inward, outward = os.pipe(), os.pipe()
        command = ["restore", "-detach", "-image-path", str(self._image), "-bundle", str(self._bundle), name]
        # What runs on keeps the error stream open, so a pipe would never end; a file needs no end.
        with tempfile.TemporaryFile() as errors:
            try:
                started = time.perf_counter()
                done = subprocess.run(
                    [self._runsc, *self._flags, *command],
                    stdin=inward[0],
                    stdout=outward[1],
                    stderr=errors,
                    env={"PATH": os.environ["PATH"]},
                )
                took = (time.perf_counter() - started) * 1000
                if done.returncode != 0:
                    errors.seek(0)
                    raise RuntimeError(f"runsc restore failed: {errors.read().decode(errors='replace')[-2000:]}")
                return took
            finally:
                delete = [self._runsc, *self._flags, "delete", "-force", name]
                subprocess.run(delete, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for descriptor in (*inward, *outward):
                    os.close(descriptor)


def flags_of(model: str) -> tuple[dict[str, str], Path]:
    """The global flags and the bundle of the sandbox `model`, from the command line of its kernel."""
    for pid in processes():
        arguments = command_line(pid)
        if "boot" in arguments and any(model in argument for argument in arguments):
            at = arguments.index("boot")
            return parsed(arguments[1:at]), Path(parsed(arguments[at + 1 :])["bundle"])
    raise RuntimeError(f"no runsc process serves sandbox {model}")


def parsed(arguments: list[str]) -> dict[str, str]:
    """`--name=value` arguments by name."""
    pairs = (argument.lstrip("-").partition("=") for argument in arguments if argument.startswith("-"))
    return {name: value for name, _, value in pairs}


def image_in(state: Path) -> Path:
    """The newest image of the code-interpreter template."""
    images = sorted(
        (state / "templates/code-interpreter").rglob("checkpoint.img"), key=lambda path: path.stat().st_mtime
    )
    if not images:
        raise RuntimeError(f"there is no image of code-interpreter under {state}")
    return images[-1].parent
