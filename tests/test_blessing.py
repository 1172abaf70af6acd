"""`pytest --bless` of HLO file tests: each CHECK line gets the printed line that stands for it."""

from __future__ import annotations

from tests.hlo_file import blessed_checks, check_output

CHECKS = [
    (3, "CHECK", "a: loop"),
    (4, "CHECK-NEXT", "100 steps; 16 lanes"),
    (5, "CHECK-NEXT", "b: loop"),
    (6, "CHECK-NEXT", "100 steps; 16 lanes"),
    (7, "CHECK-NOT", "copies"),
    (8, "CHECK", "temporaries: 0 B"),
]


def test_equal_lines_keep_their_order() -> None:
    printed = [
        "a: loop",
        "100 steps, shared; 16 lanes",
        "b: loop",
        "100 steps, shared; 16 lanes",
        "temporaries: 0 B",
    ]
    blessed = blessed_checks(CHECKS, printed)
    assert [text for *_, text in blessed] == [*printed[:4], "copies", printed[4]]
    check_output("\n".join(printed), blessed)


def test_texts_that_stand_in_their_lines_are_kept() -> None:
    printed = [
        "a: loop",
        "100 steps; 16 lanes",
        "b: loop; in place",
        "100 steps; 8 lanes",
        "temporaries: 0 B",
    ]
    texts = [text for *_, text in blessed_checks(CHECKS, printed)]
    assert texts == [
        "a: loop",
        "100 steps; 16 lanes",
        "b: loop",
        "100 steps; 8 lanes",
        "copies",
        "temporaries: 0 B",
    ]


def test_a_line_that_is_printed_beside_them_is_passed_over() -> None:
    printed = [
        "c: loop",
        "7 steps",
        "a: loop",
        "100 steps; 8 lanes",
        "b: loop",
        "100 steps; 8 lanes",
        "temporaries: 0 B",
    ]
    blessed = blessed_checks(CHECKS, printed)
    assert [text for *_, text in blessed] == [*printed[2:6], "copies", printed[6]]
