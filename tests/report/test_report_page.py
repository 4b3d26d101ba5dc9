"""report.html: well-formed, by itself, nothing left out, and no look of a pass where nothing was proven."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import sample_records as samples
from html_rules import Page
from pydantic import TypeAdapter

from harness.records import Card, Exercised, RunRecord, Verdict
from harness.report.html.findings import MOST_FINDINGS
from harness.report.html.page import report_page

RECORDS: list[Callable[[], RunRecord]] = [
    samples.clean,
    samples.failing,
    samples.eight_cards,
    samples.incomplete,
    samples.empty,
    samples.hostile,
]
_NOTHING = "Nothing was measured:"


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {make.__name__: Page(report_page(make())) for make in RECORDS}


@pytest.mark.parametrize("name", [make.__name__ for make in RECORDS])
def test_a_page_is_well_formed_refers_to_nothing_outside_and_has_its_headings_in_order(
    pages: dict[str, Page], name: str
) -> None:
    assert pages[name].problems == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<h1>a</h1><script>x</script>", "<script>"),
        ('<h1>a</h1><p onclick="x">b</p>', "<p onclick>"),
        ('<h1>a</h1><a href="https://evil.example">b</a>', "leads out"),
        ('<h1>a</h1><p style="background: url(x.png)">b</p>', "leads out"),
        ("<h1>a</h1><style>@import 'x'</style>", "style sheet leads out"),
        ("<h1>a</h1><p><b>c</p></b>", "</p> in"),
        ("<h1>a</h1><p>", "not closed"),
        ("<h1>a</h1><h3>b</h3>", "h3 behind h1"),
        ('<h1>a</h1><p id="x">b</p><p id="x">c</p>', "twice"),
        ('<h1>a</h1><a href="#x">b</a>', "nothing has the id"),
        ("<h1>a</h1><svg></svg>", "a picture without a name"),
        ("<h1>a</h1><!-- b -->", "a comment"),
        ("<h2>a</h2>", "not one h1"),
    ],
)
def test_each_rule_of_a_page_finds_what_it_is_for(text: str, problem: str) -> None:
    assert any(problem in each for each in Page(text).problems), Page(text).problems


def test_the_verdict_comes_first_and_the_sections_in_the_order_that_people_ask(pages: dict[str, Page]) -> None:
    page = pages["eight_cards"]
    assert page.headings[0][1].split() == ["FAIL", "8", "\u00d7", "NVIDIA", "H100", "80GB", "HBM3"]
    assert [text for level, text in page.headings if level == 2] == [
        "Findings and next steps",
        "Where each program ran",
        "Machine",
        "Bandwidth between devices",
        "Measured and expected rates",
        "Speedup and scaling",
        "Temperatures, clocks and other sensors",
        "What was exercised",
        "Environment",
        "How to rerun it",
    ]
    assert _NOTHING not in page.text


def test_rates_of_devices_that_share_cores_and_a_machine_that_nobody_asked_about_take_no_room() -> None:
    measured = samples.eight_cards()
    cards = tuple(Card(f"CPU:{number}", "AMD EPYC") for number in range(8))
    shared = Page(report_page(replace(measured, cards=cards)))
    assert "share the cores of this machine" in shared.text
    assert not {"Bandwidth between devices", "Measured and expected rates"} & {text for _, text in shared.headings}

    (result, *_) = samples.failing().results
    check = replace(result, check="train.py:step", replay=None)
    command = ("harness", "check", "train.py")
    page = Page(report_page(replace(samples.failing(), command=command, results=(check,), planned=("train.py:step",))))
    assert page.problems == []
    assert [text for level, text in page.headings if level == 2] == [
        "Findings and next steps",
        "Where each program ran",
        "What was exercised",
        "Environment",
        "How to rerun it",
    ]
    assert page.headings[0][1].startswith("FAIL train.py:step on ")
    assert "harness validate" not in page.text


def test_a_finding_is_told_with_its_device_what_was_expected_what_to_do_and_how_to_replay_it(
    pages: dict[str, Page],
) -> None:
    text = pages["eight_cards"].text
    told = "FAIL link on GPU:3 : PCIe of GPU:3 the link has a quarter of its width under load expected x16 found x4"
    assert told in text
    assert "Next step: slot 3 runs at x4: reseat, or look at the BIOS setting" in text
    assert "Rerun: harness validate --fake eight.toml --only links" in text
    order = [text.index(f"Next step: {word}") for word in ("stop using", "slot 3", "look at the fan")]
    assert order == sorted(order), "what fails comes before what warns"


def test_a_card_is_shown_with_its_ids_its_links_and_what_was_found_on_it(pages: dict[str, Page]) -> None:
    text = pages["eight_cards"].text
    card = text[text.index("GPU:3 NVIDIA") : text.index("GPU:4 NVIDIA")]
    for fact in (
        "FAIL 1 finding index",
        "GPU-1b2c3d4e-0000-0000-0000-000000000003",
        "0000:4C:00.0",
        "4 of 16 lanes expected",
    ):
        assert fact in card
    assert "A described machine, not real hardware." in text
    assert "A described machine" not in Page(report_page(replace(samples.eight_cards(), described=False))).text


def test_a_card_says_what_it_is_judged_against() -> None:
    def of(*cards: Card) -> str:
        return Page(report_page(replace(samples.eight_cards(), cards=cards))).text

    assert "judged against L4" in of(Card("GPU:0", "NVIDIA L4", profile="L4"))
    assert "judged against the median of this machine" in of(Card("GPU:0", "a card"), Card("core/0/CPU:0", "a core"))
    assert "judged against correct results (rates are informational)" in of(Card("CPU:0", "a core"))


def test_charts_have_their_message_in_words_and_their_figures_in_a_table(pages: dict[str, Page]) -> None:
    page = pages["eight_cards"]
    assert page.tags.count("svg") == 7, "a matrix, rates, a speedup, two programs and two sensors"
    assert page.tags.count("figure") == page.tags.count("svg")
    assert "Lowest: 13.58 GB/s from GPU:3 to host" in page.text
    assert "Framed cells with a ! have findings: GPU:1 \u2192 GPU:3." in page.text
    assert "371 !" in page.text or "366 !" in page.text
    assert "Lowest: 25% (PCIe link width on GPU:3)" in page.text
    assert "The highest reading is 90.41 C on GPU:5, the lowest 32 C on GPU:0" in page.text
    for caption in ("All copies", "Sensor readings", "Ops on each device"):
        assert caption in page.text


def test_without_a_measurement_a_section_says_that_nothing_was_measured(pages: dict[str, Page]) -> None:
    assert pages["clean"].text.count(_NOTHING) == 5, "no cards, copies, rates, speedups and sensors"
    assert "No check found a fault in what was exercised" in pages["clean"].text


def test_a_run_with_nothing_looks_like_no_pass(pages: dict[str, Page]) -> None:
    page = pages["empty"]
    assert page.headings[0][1].split()[0] == "UNKNOWN"
    for said in (
        "Incomplete.",
        "Nothing was exercised.",
        "This is not a pass",
        "1 of 1 check has no result: vector-add",
    ):
        assert said in page.text
    assert "PASS" not in page.text
    assert "No check found a fault" not in page.text


def test_a_pass_that_rests_on_nothing_is_called_so() -> None:
    text = Page(report_page(samples.run(samples.passed(exercised=Exercised())))).text
    assert "Nothing was exercised. This report proves nothing" in text
    assert "Nothing was exercised." not in Page(report_page(samples.clean())).text


def test_an_incomplete_run_is_marked_on_top_and_names_what_is_missing(pages: dict[str, Page]) -> None:
    text = pages["incomplete"].text
    assert text.index("Incomplete.") < text.index("Findings and next steps")
    assert "2 of 3 checks have no result: matpow, pipeline" in text
    assert "exit code 130" in text
    assert "the unfinished checks may" in text
    assert "Incomplete." not in pages["clean"].text


def test_each_verdict_is_said_in_words_and_an_accepted_failure_counts_as_a_warning(pages: dict[str, Page]) -> None:
    text = pages["failing"].text
    assert "7 checks: 2 FAIL 1 UNKNOWN 2 WARN 1 SKIP 1 PASS" in text
    assert "Accepted as a known failure: known: ticket 12" in text
    assert "Known failures that no longer occur" in text
    assert "pipeline: ticket 7" in text


def test_a_page_names_the_command_that_was_run() -> None:
    for command in ("burnin", "validate"):
        text = report_page(samples.run(samples.passed(), command=("/usr/bin/harness", command, "--devices", "burnin")))
        assert f'<p class="brand">harness {command}</p>' in text
        assert f"harness {command}</title>" in text


def test_names_of_users_are_shown_as_they_are_and_never_taken_for_markup(pages: dict[str, Page]) -> None:
    page = pages["hostile"]
    assert page.problems == []
    for shown in (
        "<script>alert(1)</script>",
        "]]><b>",
        '"><img src=x onerror=alert(1)>',
        "\\x1b[31mred\\x00\\x07",
        "\\u202egnp.exe",
        "اسم العملية",
        "{{ 7 * 7 }}",
        "$\\frac{1}{2}$ `code` **bold** [link](http://evil.example)",
        "\\ud800 alone",
        "&amp; <!-- --> </style></svg>",
    ):
        assert shown in page.text
    assert "49" not in re.sub(r"\d{3,}|\d+\.\d+", "", page.text), "no template is made of a name"


def test_of_ten_thousand_findings_the_first_are_shown_and_the_rest_are_counted() -> None:
    text = report_page(samples.many_findings(10_000))
    assert "9,960 more findings of this check, in run.json" in text
    assert text.count("off by one") == MOST_FINDINGS
    assert len(text) < 100_000


def test_a_page_is_light_and_the_same_each_time() -> None:
    one, other = (report_page(samples.eight_cards()) for _ in range(2))
    assert one == other
    assert len(one) < 600_000


def test_the_verdict_of_a_pass_is_told_as_one(pages: dict[str, Page]) -> None:
    assert pages["clean"].headings[0][1].split() == [str(Verdict.PASS), "cpu:2"]


def test_the_next_step_of_a_finding_is_shown_unless_the_result_has_it() -> None:
    step = "swap the riser"

    def text_of(next_step: str) -> str:
        record = samples.eight_cards()
        failed = next(result for result in record.results if result.findings)
        finding = replace(failed.findings[0], next_step=step)
        return Page(
            report_page(replace(record, results=(replace(failed, findings=(finding,), next_step=next_step),)))
        ).text

    assert text_of("look at the slot").count(step) == 1
    assert text_of(f"GPU:3: {step}").count(step) == 1


def test_a_record_from_before_cards_had_a_kind_still_loads() -> None:
    stored = TypeAdapter(RunRecord).dump_python(samples.eight_cards(), mode="json")
    for card in stored["cards"]:
        del card["kind"]
    for result in stored["results"]:
        for finding in result["findings"]:
            for name in ("next_step", "mode", "subject", "pair", "lasting"):
                del finding[name]
        for figure in result["figures"]:
            del figure["quantity"]
    loaded = TypeAdapter(RunRecord).validate_json(json.dumps(stored))
    assert loaded == samples.eight_cards()
    assert {card.kind for card in loaded.cards} == {"GPU"}
