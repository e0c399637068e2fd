"""A Semantic Kernel plugin whose functions run in a sandbox, never in this process."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Annotated

from pandastack import Sandbox
from semantic_kernel.functions import kernel_function

# What the model is given of one run, in characters; more would crowd the conversation out of its window.
SHOWN_OUTPUT = 6000


class CodePlugin:
    """Python with memory, and files, for one conversation.

    The sandbox is made with the plugin and ends with `close`. One code context lives in it, so that what a cell
    defines is there in the next; a cell may take `cell_seconds`. Charts come back as pictures and are saved into
    `charts_folder` on this machine. The sandbox ends by itself when it was idle for `ttl_seconds`.
    """

    def __init__(self, charts_folder: Path, ttl_seconds: int = 1800, cell_seconds: int = 20) -> None:
        self.charts_folder = charts_folder
        self.cell_seconds = cell_seconds
        self.charts: list[Path] = []
        self.timings: list[tuple[str, float]] = []
        started = time.perf_counter()
        self._sandbox = Sandbox.create(template="code-interpreter", ttl_seconds=ttl_seconds)
        self._note("create the sandbox", started)
        try:
            started = time.perf_counter()
            self._context = self._sandbox.create_code_context(language="python")
            self._note("open its Python context", started)
        except BaseException:
            self._sandbox.kill()
            raise

    @property
    def sandbox_id(self) -> str:
        """The sandbox behind this plugin."""
        return self._sandbox.id

    @kernel_function(
        name="run_python",
        description=(
            "Runs Python 3 code in a sandbox of its own and returns what it printed, the value of its last "
            "expression, and the traceback if it failed. Variables, imports and files stay for later calls in this "
            "conversation. pandas, numpy and matplotlib are installed. The sandbox has no network. A chart that is "
            "shown with plt.show() is delivered to the user. Use it for every calculation instead of guessing."
        ),
    )
    def run_python(
        self, code: Annotated[str, "Python source. print() what you need to know."]
    ) -> Annotated[str, "Output, last value, charts and errors of the run, as text."]:
        started = time.perf_counter()
        try:
            execution = self._context.run_code(code, timeout_seconds=self.cell_seconds)
        except Exception as error:
            # A model can react to text; an exception would end its turn without telling it why.
            return f"The run failed: {error}"
        self._note(f"cell {sum(label.startswith('cell') for label, _ in self.timings) + 1}", started)

        parts = [execution.stdout.rstrip(), execution.stderr.rstrip()]
        if execution.error and execution.error.rstrip() not in parts:
            parts.append(execution.error.rstrip())
        for result in execution.results:
            parts.append(self._save_chart(result.png) if result.png else (result.text or ""))
        shown = "\n".join(part for part in parts if part) or "It ran and printed nothing."
        if len(shown) > SHOWN_OUTPUT:
            shown = f"{shown[:SHOWN_OUTPUT]}\n[{len(shown) - SHOWN_OUTPUT} more characters; print less]"
        return shown

    @kernel_function(
        name="write_file",
        description=(
            "Writes a text file (UTF-8) into the sandbox for run_python to read. Folders on the way are made; a file "
            "of that name is replaced."
        ),
    )
    def write_file(
        self,
        path: Annotated[str, "Absolute path below /work, such as /work/data.csv."],
        content: Annotated[str, "The whole text of the file."],
    ) -> str:
        started = time.perf_counter()
        self._sandbox.filesystem.write(path, content)
        self._note(f"write {path}", started)
        return f"wrote {len(content.encode())} bytes to {path}"

    def close(self) -> None:
        """Ends the sandbox, and with it everything that ran there."""
        started = time.perf_counter()
        self._sandbox.kill()
        self._note("remove the sandbox", started)

    def _save_chart(self, png: str) -> str:
        data = base64.b64decode(png)
        self.charts_folder.mkdir(parents=True, exist_ok=True)
        path = self.charts_folder / f"chart-{len(self.charts) + 1}.png"
        path.write_bytes(data)
        self.charts.append(path)
        return f"[chart: image/png, {len(data)} bytes, shown to the user]"

    def _note(self, label: str, started: float) -> None:
        self.timings.append((label, (time.perf_counter() - started) * 1000))
