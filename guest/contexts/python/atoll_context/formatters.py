"""Objects to MIME bundles: IPython's formatters, quicker for plain values and calm about objects that misbehave."""

from IPython.core.formatters import DisplayFormatter

from . import figures, frames, plotly_figures, text

MAX_ITEMS = 1000
"""Items of a container that are shown; IPython's own limit."""

_CONTAINERS = (list, tuple, set, frozenset, dict)
_PLAIN = frozenset({int, float, complex, bool, str, bytes, *_CONTAINERS})


class Formatter(DisplayFormatter):
    """Makes the bundle of one object. A representation that raises is left out, and a note in text/plain says so."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        plain = self.formatters["text/plain"]
        plain.max_seq_length = MAX_ITEMS
        plain.for_type_by_name("pandas.core.frame", "DataFrame", frames.pretty)
        self.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", figures.png_of_result)
        self.mimebundle_formatter.for_type_by_name("plotly.basedatatypes", "BaseFigure", plotly_figures.bundle)

    def format(self, obj, include=None, exclude=None):
        """The bundle of an object and its metadata, both empty when it has displayed itself."""
        if type(obj) in _PLAIN and not include and not exclude and not self._has_printers(type(obj)):
            notes = []
            bundle = {"text/plain": self._text(obj, notes)}
            return _with_notes(bundle, notes), {}
        return self._format_any(obj, include, exclude)

    def _has_printers(self, kind):
        return any(
            kind in formatter.type_printers for mime, formatter in self.formatters.items() if mime != "text/plain"
        )

    def _format_any(self, obj, include, exclude):
        notes = []
        # What somebody registered for this type goes before the object's own idea of displaying itself.
        registered = obj in _Lookup(self.mimebundle_formatter)
        if not registered and _call(self.ipython_display_formatter, obj, notes):
            return {}, {}
        bundle, metadata = self._mimebundle(obj, include, exclude, notes)
        for mime, formatter in self.formatters.items():
            if (include and mime not in include) or (exclude and mime in exclude):
                continue
            if mime in bundle and obj not in _Lookup(formatter):
                continue
            data = self._text(obj, notes) if mime == "text/plain" else _call(formatter, obj, notes)
            if isinstance(data, tuple) and len(data) == 2:
                data, metadata[mime] = data
            if data is not None:
                bundle[mime] = data
        return _with_notes(bundle, notes), metadata

    def _mimebundle(self, obj, include, exclude, notes):
        made = _call(self.mimebundle_formatter, obj, notes, include=include, exclude=exclude)
        bundle, metadata = made if isinstance(made, tuple) else (made, {})

        def allowed(mime):
            return not (include and mime not in include) and not (exclude and mime in exclude)

        bundle = {mime: value for mime, value in (bundle or {}).items() if allowed(mime)}
        return bundle, {mime: value for mime, value in (metadata or {}).items() if allowed(mime)}

    def _text(self, obj, notes):
        failures = []
        made = _call(self.formatters["text/plain"], obj, failures, label="repr")
        if made is None and failures:
            return f"<{type(obj).__name__} object> {failures[0]}"
        if type(obj) in _CONTAINERS and len(obj) > MAX_ITEMS:
            notes.append(f"(cut: {MAX_ITEMS} of {len(obj)} items are shown)")
        return made


class _Lookup:
    """`obj in _Lookup(formatter)`: whether a function is registered for the object's type."""

    def __init__(self, formatter):
        self._formatter = formatter

    def __contains__(self, obj):
        try:
            self._formatter.lookup(obj)
        except KeyError:
            return False
        return True


def _call(formatter, obj, notes, label=None, **kwargs):
    """What a formatter makes of an object; None and a note when the object's method raises.

    IPython wraps each formatter in a decorator that prints a traceback and costs 60 microseconds: go below it.
    """
    method = type(formatter).__call__
    method = getattr(method, "__wrapped__", method)
    try:
        return formatter._check_return(method(formatter, obj, **kwargs), obj)
    except NotImplementedError:
        return None
    except Exception as error:
        notes.append(f"({label or _label(formatter)} left out: {text.describe(error)})")
        return None


def _label(formatter):
    return formatter.format_type or str(formatter.print_method)


def _with_notes(bundle, notes):
    if notes:
        lines = [bundle["text/plain"]] if bundle.get("text/plain") is not None else []
        bundle["text/plain"] = "\n".join([*lines, *notes])
    return bundle
