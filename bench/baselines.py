"""What the measures are held against: the same work without Atoll, on the same machine, in the same run."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """How many milliseconds a call takes, and what it gives."""
    started = time.perf_counter()
    result = work()
    return (time.perf_counter() - started) * 1000, result


class Jupyter:
    """An `ipykernel` behind `jupyter_client`: a code context as most systems have it, without any wall around it."""

    IMPORTS = "import numpy, pandas, matplotlib.pyplot"

    def __init__(self) -> None:
        # Imported here, because only this baseline needs the packages of bench/requirements.txt.
        from jupyter_client.manager import start_new_kernel

        # The variables slow NumPy down on some processors; the sandbox does not see them either.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
        self._manager, self._client = start_new_kernel(kernel_name="python3", env=plain)
        self.run(self.IMPORTS)

    def run(self, code: str) -> None:
        """Runs a cell and waits for its reply."""
        reply = self._client.execute(code, allow_stdin=False, reply=True, timeout=60)
        if reply["content"]["status"] != "ok":
            raise RuntimeError(f"the kernel failed: {reply['content']}")

    def close(self) -> None:
        """Ends the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def fresh_kernel() -> float:
    """Milliseconds until a new kernel has the imports that a sandbox's context comes with."""
    took, kernel = timed(Jupyter)
    kernel.close()
    return took


def true_here() -> float:
    """Milliseconds of `true` as a child process of this one."""
    return timed(lambda: subprocess.run(["true"], check=True))[0]
