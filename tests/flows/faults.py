"""Which test stands for which row of the list of faults: read off the `fault` markers.

python tests/flows/faults.py            prints FAULTS.md
"""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
# The rows that concern what is built, by section of the list.
SECTIONS = {
    "A. Text and streams": (1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16),
    "B. Cells: time, input, exit, death": (17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35),
    "C. Rich results": (37, 38, 40, 41, 43, 44, 46, 47),
    "D. Contexts and concurrency": (49, 50, 52, 53, 55, 56),
    "E. exec": (58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74, 76, 77, 79),
    "F. PTY": (80, 82, 83),
    "G. Files": (85, 86, 88, 89, 91, 92, 97, 98),
    "J. Creates, ids and keys": (131, 134, 143, 145, 146),
    "K. Environment": (148, 149, 151, 152, 154, 155),
}
# Rows whose test lies elsewhere, and rows of these sections that speak of what is not built yet.
ELSEWHERE = {
    44: "`tests/recipes`: each adapter returns the picture's kind, size and bytes",
    94: "not built: watching files",
    95: "not built: watching files",
}


def tests_by_row(folder: Path = HERE) -> dict[int, list[str]]:
    """Row to the tests that carry its marker, as `file::function`."""
    found: dict[int, list[str]] = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            for row in rows_of(node):
                found.setdefault(row, []).append(f"{path.stem}::{node.name}")
    return found


def rows_of(function: ast.FunctionDef) -> list[int]:
    """The rows in a function's `fault` marker."""
    return [
        argument.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault"
        for argument in decorator.args
        if isinstance(argument, ast.Constant)
    ]


def table() -> str:
    """The whole of FAULTS.md."""
    found = tests_by_row()
    lines = [
        "# Reported faults and the tests that stand for them",
        "",
        "Written by `python tests/flows/faults.py`; the rows are those of the list of faults that other systems' users",
        "reported. A test that checks this page fails when it is out of date.",
    ]
    for section, rows in SECTIONS.items():
        lines += ["", f"## {section}", "", "| row | tests |", "|---|---|"]
        lines += [f"| {row} | {cell(row, found)} |" for row in rows]
    lines += ["", "## Elsewhere or not yet", "", "| row | where |", "|---|---|"]
    lines += [f"| {row} | {where} |" for row, where in ELSEWHERE.items()]
    return "\n".join(lines) + "\n"


def cell(row: int, found: dict[int, list[str]]) -> str:
    """The tests of a row."""
    return "<br>".join(f"`{name}`" for name in found.get(row, [])) or ELSEWHERE.get(row, "**none**")


if __name__ == "__main__":
    print(table(), end="")
