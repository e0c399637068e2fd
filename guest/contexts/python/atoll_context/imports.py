"""Runs a function right after a module was imported, whoever imports it and whenever.

For libraries that need a setting of ours (matplotlib's backend, plotly's renderer) and that a template may or may not have.
"""

import importlib.abc
import importlib.util
import sys


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.waiting = {}

    def find_spec(self, name, path=None, target=None):
        """The real spec of a module that somebody waits for, with a loader that tells them."""
        action = self.waiting.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.waiting[name] = action
            return None
        spec.loader = _Loader(spec.loader, action)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, real, action):
        self._real = real
        self._action = action

    def __getattr__(self, name):
        # Resource readers and the like ask the loader for more than the two methods below.
        return getattr(self._real, name)

    def create_module(self, spec):
        """As the real loader does."""
        return self._real.create_module(spec)

    def exec_module(self, module):
        """Runs the module, then what waited for it."""
        module.__spec__.loader = module.__loader__ = self._real
        self._real.exec_module(module)
        self._action(module)


_FINDER = _Finder()


def after_import(name, action):
    """Calls `action(module)` once the module of that name is there; at once when it is there already."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.waiting[name] = action
