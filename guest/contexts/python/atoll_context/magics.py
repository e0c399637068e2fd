"""The magics that need to know where they run; all others are IPython's."""

import shlex
import subprocess
import sys
import tempfile

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from . import commands

MAX_ARGUMENT = 100_000
"""Longest script that is passed as an argument, in bytes; Linux takes 131071."""


@magics_class
class AtollMagics(Magics):
    """Registered over IPython's own of the same names."""

    @line_magic
    def pip(self, line):
        """Runs pip of this interpreter."""
        line = self.shell.var_expand(line, depth=1)
        code = commands.run([sys.executable, "-m", "pip", *shlex.split(line)])
        # What was just installed is to be importable in the next line.
        sys.path_importer_cache.clear()
        self.shell.user_ns["_exit_code"] = code

    @line_magic
    def matplotlib(self, line):
        """Nothing: figures are shown inline always."""

    @line_magic
    def debug(self, line):
        """Refuses: nobody is there to type at a debugger."""
        raise RuntimeError("%debug is not available here: nobody can answer a debugger. Print what you want to know.")

    @cell_magic
    def bash(self, line, cell):
        """Runs the cell with bash. A failure raises, as in IPython."""
        self._script("bash", line, cell)

    @cell_magic
    def sh(self, line, cell):
        """Runs the cell with sh. A failure raises, as in IPython."""
        self._script("sh", line, cell)

    def _script(self, program, line, cell):
        options = shlex.split(line)
        checked = "--no-raise-error" not in options
        options = [option for option in options if option not in ("--no-raise-error", "--raise-error")]
        if any(option in ("--out", "--err", "--bg", "--proc") for option in options):
            # Capturing into variables is IPython's business: `%%script` does all of that.
            return self.shell.run_cell_magic("script", f"{line} {program}", cell)
        code = self._run_script(program, options, cell)
        self.shell.user_ns["_exit_code"] = code
        if code and checked:
            raise subprocess.CalledProcessError(code, f"%%{program}")

    def _run_script(self, program, options, cell):
        if len(cell.encode("utf-8", "replace")) <= MAX_ARGUMENT:
            return commands.run([program, *options, "-c", cell])
        with tempfile.NamedTemporaryFile("w", suffix=f".{program}") as script:
            script.write(cell)
            script.flush()
            return commands.run([program, *options, script.name])
