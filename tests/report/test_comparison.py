"""Runs side by side: what stands out, by the rule that the page says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_records as samples
from html_rules import Page

from harness.records import Figure, RunRecord, Verdict
from harness.report.comparison import RULE, Column, compare, outliers
from harness.report.html.comparison_page import comparison_page


def columns(*records: RunRecord) -> list[Column]:
    return [Column(f"machine-{number}", record) for number, record in enumerate(records)]


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([100.0, 101.0, 99.0, 50.0], {3}),
        ([100.0, 101.0, 99.0, 150.0], {3}),
        ([100.0, 101.0, 99.0, 93.0], set()),  # far by their spread, and within the 8 % that are normal
        ([60.0, 80.0, 100.0, 120.0, 140.0], set()),  # far apart, all of them
        ([100.0, 100.0, 100.0, 91.0], {3}),  # a spread of nothing
        ([100.0, 100.0, 100.0, 93.0], set()),
        ([100.0, 90.0], {0, 1}),
        ([100.0, 93.0], set()),
        ([100.0], set()),
        ([], set()),
        ([None, 100.0, 50.0], {1, 2}),
        ([None, 100.0, 101.0, 99.0], set()),
        ([float("nan"), 100.0, 101.0], {0}),
        ([float("nan"), float("nan")], set()),
        ([0.0, 0.0, 0.0], set()),
        ([0.0, 0.0], set()),
    ],
)
def test_a_value_stands_out_by_its_distance_and_by_what_is_normal(values: list[float | None], places: set[int]) -> None:
    assert outliers(values) == places


def test_figures_of_several_runs_are_matched_by_check_name_place_size_and_unit() -> None:
    whole = samples.eight_cards()
    said = compare(
        columns(whole, whole, samples.scaled(whole, 0.5, "GPU:2"), replace(whole, results=whole.results[:1]))
    )
    marked = {row.where for row in said.figures if row.outliers}
    assert marked
    assert all(where.startswith("GPU:2") for where in marked)
    assert {row.outliers for row in said.figures} == {frozenset(), frozenset({2})}
    assert {row.values[3] for row in said.figures} == {None}
    keys = [(row.check, row.name, row.where, row.unit) for row in said.figures]
    assert len(set(keys)) == len(keys) == sum(len(result.figures) for result in whole.results)


def test_a_verdict_that_most_runs_do_not_have_stands_out() -> None:
    failed = samples.run(samples.passed(verdict=Verdict.FAIL))
    clean = samples.run(samples.passed())
    assert compare(columns(clean, failed, clean)).verdicts[0].outliers == {1}
    assert compare(columns(clean, failed)).verdicts[0].outliers == {0, 1}
    assert compare(columns(clean, clean, clean)).verdicts[0].outliers == frozenset()
    missing = compare(columns(clean, clean, samples.empty())).verdicts[0]
    assert missing.verdicts[2] is None
    assert missing.outliers == {2}


def test_the_page_has_a_column_for_each_run_marks_what_stands_out_in_words_and_says_the_rule() -> None:
    whole = samples.eight_cards()
    text = comparison_page(compare(columns(whole, whole, samples.scaled(whole, 0.5, "GPU:2"))))
    page = Page(text)
    assert page.problems == []
    assert page.headings[0][1].split() == ["FAIL", "3", "runs", "side", "by", "side"]
    for said in ("machine-0", "machine-1", "machine-2", "25.15 GB/s", "outlier", RULE, "Described in a file"):
        assert said in page.text
    assert '<td class="number outlier"><bdi>25.15 GB/s</bdi> <span class="mark">outlier</span></td>' in text
    assert '<span class="mark">' not in comparison_page(compare(columns(whole, whole, whole)))


def test_names_of_users_are_no_markup_and_runs_without_anything_are_no_pass() -> None:
    page = Page(comparison_page(compare([*columns(samples.hostile()), Column("<b>\u202e</b>", samples.empty())])))
    assert page.problems == []
    assert "<b>\\u202e</b>" in page.text
    nothing = Page(comparison_page(compare(columns(samples.empty(), samples.empty()))))
    assert nothing.problems == []
    assert nothing.headings[0][1].split()[0] == "UNKNOWN"
    assert nothing.text.count("Nothing was measured:") == 2
    assert "Incomplete:" in nothing.text


def test_a_nan_among_figures_is_shown_as_such() -> None:
    strange = samples.run(samples.passed(figures=(Figure("rate", float("nan"), "GB/s", "GPU:0"),)))
    usual = samples.run(samples.passed(figures=(Figure("rate", 5.0, "GB/s", "GPU:0"),)))
    said = compare(columns(strange, usual, usual))
    assert said.figures[0].outliers == {0}
    assert "not a number" in Page(comparison_page(said)).text
