"""The tool body that the AG2 and AutoGen recipes share: Python with memory, in a sandbox, as a plain function."""

from __future__ import annotations

import base64

from pandastack import CodeContext, Sandbox


class PythonTool:
    """One sandbox and one context for one conversation, made at the first call.

    The function that an agent gets is `run_python`; its docstring and type hints become the schema that a model sees.
    """

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None
        self.charts: list[bytes] = []
        self._context: CodeContext | None = None

    def _kernel(self) -> CodeContext:
        if self._context is None:
            self.sandbox = Sandbox.create(
                template="code-interpreter", ttl_seconds=3600, metadata={"tool": "autogen-code-exec"}
            )
            self._context = self.sandbox.create_code_context(language="python")
        return self._context

    def run_python(self, code: str) -> str:
        """Run Python code in an isolated sandbox and return what it printed, its last value and its errors.

        Variables and imports of earlier calls are still there. Show charts with plt.show().
        """
        execution = self._kernel().run_code(code)
        if execution.error:
            return f"ERROR:\n{execution.error}\n\nstdout:\n{execution.stdout}"
        parts = [execution.stdout.rstrip()]
        if execution.stderr:
            parts.append(f"[stderr] {execution.stderr.rstrip()}")
        if execution.text and execution.text not in execution.stdout:
            parts.append(f"[result] {execution.text}")
        if execution.png:
            self.charts.append(base64.b64decode(execution.png))
            parts.append(f"[chart] image/png, {len(self.charts[-1])} bytes")
        return "\n".join(part for part in parts if part) or "(no output)"

    def close(self) -> None:
        """Closes the context and ends the sandbox; closing the context alone would leave it to its idle limit."""
        if self._context is not None:
            self._context.close()
        if self.sandbox is not None:
            self.sandbox.kill()
