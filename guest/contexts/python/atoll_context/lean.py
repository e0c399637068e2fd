"""Imports IPython without its terminal and its completer's parser: a sixth of what a zygote would else hold, and so of what
each restore loads and each fork copies. Both are there as ever for a cell that imports them itself.
"""

import sys
import types


def import_ipython():
    """To be called before anything else imports IPython."""
    terminal = types.ModuleType("IPython.terminal.embed")
    terminal.embed = _embed
    left_out = {"IPython.terminal.embed": terminal, "jedi": None}
    for name, stand_in in left_out.items():
        sys.modules.setdefault(name, stand_in)
    # The completer looks for jedi once, when it is imported.
    import IPython.core.completer  # noqa: F401

    for name, stand_in in left_out.items():
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


def _embed(*_args, **_kwargs):
    raise RuntimeError("IPython.embed() is not available here: it needs a terminal.")
