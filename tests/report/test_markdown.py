"""report.md: what a ticket shows."""

from __future__ import annotations

import re

import pytest
import sample_records as samples

from harness.report.markdown import MOST_FINDINGS, escaped, report_markdown


def test_the_verdict_is_first_and_then_what_is_wrong_and_what_to_do() -> None:
    text = report_markdown(samples.eight_cards())
    assert text.startswith("# FAIL on gpu (8 GPUs)\n")
    assert "**Described machine**" in text
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads == ["Findings and next steps", "What was exercised", "Figures", "Environment"]
    assert "- FAIL *link* on GPU:3, PCIe of GPU:3: the link has a quarter of its width under load" in text
    assert "- **Next**: slot 3 runs at x4: reseat, or look at the BIOS setting" in text
    assert "- **Replay**: `harness validate --fake eight.toml --only links`" in text


def test_a_clean_run_says_so_and_what_it_rests_on() -> None:
    text = report_markdown(samples.clean())
    assert "No check found a fault." in text
    assert "| vector-add | PASS | 2 programs, 300,000 values, 8 ops on 2 devices | 0.3 s |" in text
    assert "No figure was measured." in text
    assert "INCOMPLETE" not in text


def test_an_incomplete_run_is_marked_and_names_what_is_missing() -> None:
    assert "**INCOMPLETE**: the run ended early; checks without a result: matpow, pipeline." in report_markdown(
        samples.incomplete()
    )


def test_a_run_with_nothing_is_no_pass() -> None:
    text = report_markdown(samples.empty())
    assert text.startswith("# UNKNOWN")
    assert "no check has a conclusive result" in text
    assert "No check found a fault" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>", "&lt;script&gt;"),
        ("a | b", "a \\| b"),
        ("*x* _y_ `z`", "\\*x\\* \\_y\\_ \\`z\\`"),
        ("[a](b)", "\\[a\\](b)"),
        ("two\nlines", "two lines"),
        ("http://a www.b", "http\\://a www\\.b"),
        ("@team #12 $x$", "\\@team \\#12 \\$x\\$"),
        ("GPU:1, 3.5 - 4", "GPU:1, 3.5 - 4"),
        ("\u202ea", "\\\\u202ea"),
    ],
)
def test_a_text_of_a_user_is_no_markup(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_hostile_names_make_no_markup_and_no_line_of_their_own() -> None:
    text = report_markdown(samples.hostile())
    code = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
    for line in text.splitlines():
        plain = code.sub("", line)
        assert not re.search(r"<\w|</|(?<!\\)\]\(http", plain), line
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\ud800]", text)


def test_of_many_findings_the_first_are_shown_and_the_rest_are_counted() -> None:
    text = report_markdown(samples.many_findings(10_000))
    assert f"- and {10_000 - MOST_FINDINGS:,} more findings, in `run.json`" in text
    assert text.count("off by one") == MOST_FINDINGS
