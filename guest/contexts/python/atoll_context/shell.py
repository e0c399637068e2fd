"""IPython's InteractiveShell without a terminal: no history file, no threads, no prompts; results go to the agent."""

import asyncio
import builtins
import getpass
import os
import sys
import tempfile

from IPython.core.autocall import ExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from . import commands, formatters, hooks, stdio
from .magics import AtollMagics

OUTPUT_CACHE = 100
"""Values that `Out` keeps alive."""


class Compiler(CachingCompiler):
    """Names cells in tracebacks."""

    def get_code_name(self, raw_code, transformed_code, number):
        """As in `<cell 3>`."""
        return f"<cell {number}>"


class Leave(ExitAutocall):
    """`exit`, `exit()` and `exit(3)`: ends the cell, not the context."""

    rewrite = False

    def __call__(self, code=None):
        """As `sys.exit` does."""
        raise SystemExit(code)


class Shell(InteractiveShell):
    """One shell a context. `results` is set before its first cell."""

    results = None
    displayhook_class = hooks.ResultHook
    display_pub_class = hooks.ResultPublisher
    compiler_class = Compiler

    def init_display_formatter(self):
        """Ours, instead of IPython's."""
        self.display_formatter = formatters.Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_user_ns(self):
        """IPython's names, with our `exit`. Called again by `%reset`."""
        super().init_user_ns()
        leave = {"exit": Leave(), "quit": Leave()}
        self.user_ns.update(leave)
        self.user_ns_hidden.update(leave)

    def init_magics(self):
        """IPython's magics, then ours over them."""
        super().init_magics()
        self.register_magics(AtollMagics)

    def enable_gui(self, gui=None):
        """There is none."""

    def enable_matplotlib(self, gui=None):
        """Figures are always inline."""
        return "inline", "inline"

    def system(self, command):
        """`!command`: its exit code is kept as `_exit_code`."""
        self.user_ns["_exit_code"] = commands.run(commands.shell_argv(self.var_expand(command, depth=1)))

    system_piped = system_raw = system

    def getoutput(self, command, split=True, depth=0):
        """`lines = !command`."""
        stdio.flush()
        return super().getoutput(command, split, depth + 1)

    # The outcome is read from the ExecutionResult and told by the `done` message; nothing is printed.
    def showtraceback(self, *_args, **_kwargs):
        """Nothing."""

    def showsyntaxerror(self, *_args, **_kwargs):
        """Nothing."""

    def showindentationerror(self):
        """Nothing."""

    def _format_exception_for_storage(self, exception, filename=None, running_compiled_code=False):
        # IPython would format each traceback a second time, with source analysis, for a history that is never written.
        return {"ename": type(exception).__name__, "evalue": "", "traceback": []}

    async def run_code(self, code_obj, result=None, *, async_=False):
        """Executes one compiled statement; True when it raised. Unlike the base class it is silent about SystemExit."""
        __tracebackhide__ = "__ipython_bottom__"
        try:
            if async_:
                await eval(code_obj, self.user_global_ns, self.user_ns)
            else:
                exec(code_obj, self.user_global_ns, self.user_ns)
        except BaseException as error:
            if result is not None:
                result.error_in_exec = error
            # For `%tb`, pdb.pm() and sys.last_value.
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
            return True
        return False


def run_in_loop(coroutine):
    """Runs a cell that awaits, in the event loop that all such cells of the context share.

    When it is interrupted its task is cancelled, so that it does not wake up inside the next cell.
    """
    loop = event_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=1))
        raise


def event_loop():
    """The context's event loop, made on first use and again when a cell closed it."""
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
        asyncio.set_event_loop(_loop)
    return _loop


def existing_loop():
    """The context's event loop if a cell has used it."""
    return None if _loop is None or _loop.is_closed() else _loop


def close_loop():
    """Ends the event loop, as if none had ever been asked for: a fork must not share its descriptors."""
    if existing_loop() is not None:
        _loop.close()
    asyncio.set_event_loop_policy(None)


_loop = None


def create():
    """The one shell of this process, made before the fork because it takes 100 ms to make."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.cache_size = OUTPUT_CACHE
    config.InteractiveShell.loop_runner = run_in_loop
    config.InteractiveShell.xmode = "Plain"
    config.InteractiveShell.enable_tip = False
    # A folder that IPython insists on; in the temporary folder, so that the home of the user stays as it was.
    folder = os.path.join(tempfile.gettempdir(), ".ipython")
    shell = Shell.instance(config=config, colors="nocolor", ipython_dir=folder)
    shell.set_hook("show_in_pager", _print_page, 99)
    _refuse_questions()
    return shell


def _print_page(_shell, data, start=0, screen_lines=0):
    print(data["text/plain"] if isinstance(data, dict) else data)


def _refuse_questions():
    """Whatever would wait for a person says so instead."""

    def refuse(*_args, **_kwargs):
        raise StdinNotImplementedError("input() is not available here: nobody can answer. Put the value into the code.")

    def no_breakpoint(*_args, **_kwargs):
        raise RuntimeError("breakpoint() is not available here: nobody can answer a debugger.")

    builtins.input = getpass.getpass = refuse
    sys.breakpointhook = no_breakpoint
