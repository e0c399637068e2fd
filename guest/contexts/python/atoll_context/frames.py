"""How a DataFrame reads as text: wide enough for a reader without a screen, and open about what it leaves out."""

MAX_COLUMNS = 20
WIDTH = 160


def configure(pandas):
    """Display options for a reader that has no terminal. pandas would else fit its text into 80 columns."""
    pandas.set_option("display.max_columns", MAX_COLUMNS)
    pandas.set_option("display.width", WIDTH)


def pretty(frame, printer, cycle):
    """pandas' own text, and a line that says how much of a large frame it shows."""
    printer.text(repr(frame))
    note = cut_note(
        frame.shape, _option("display.max_rows"), _option("display.min_rows"), _option("display.max_columns")
    )
    if note:
        printer.text("\n" + note)


def cut_note(shape, max_rows, min_rows, max_columns):
    """One line for a frame of that shape under those options; None when all of it is shown."""
    rows, columns = shape
    parts = []
    if max_rows and rows > max_rows:
        parts.append(f"{min(min_rows or max_rows, max_rows)} of {rows} rows")
    if max_columns and columns > max_columns:
        parts.append(f"{max_columns} of {columns} columns")
    return f"(cut: {' and '.join(parts)} are shown; to_string() or to_csv() gives all)" if parts else None


def _option(name):
    import pandas

    return pandas.get_option(name)
