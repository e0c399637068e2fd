"""The table of faults tells the truth."""

from __future__ import annotations

import faults


def test_the_table_is_what_the_markers_say():
    assert (faults.HERE / "FAULTS.md").read_text() == faults.table()


def test_every_row_has_a_test_and_every_marker_a_row():
    found = faults.tests_by_row()
    rows = {row for section in faults.SECTIONS.values() for row in section}
    assert rows - set(found) <= set(faults.ELSEWHERE)
    assert set(found) <= rows
