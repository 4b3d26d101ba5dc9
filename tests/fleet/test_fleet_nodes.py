"""What runs on the nodes: the prolog, the manifests and the metrics; and the policy that they share."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path

import pytest
import sample_records as samples
import simulated_fleet as simulated

from harness.errors import InvalidPolicy, UsageError
from harness.fleet import driver_cards, policy as policy_module
from harness.fleet.actions import Action
from harness.fleet.manifest import Wanted, as_yaml, manifests
from harness.fleet.metrics import ALERT_RULES, metrics_text
from harness.fleet.policy import Policy, load_policy
from harness.fleet.prolog import judge_node, last_run
from harness.records import Card, RunRecord, Verdict

NOW = datetime(2026, 11, 3, tzinfo=timezone.utc)
#: A line of Prometheus' text format: a name, labels with escaped values, a number.
_SAMPLE = re.compile(r'[a-z_]+(?:\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (?:NaN|[-+]?Inf|-?[\d.]+(?:e[-+]?\d+)?)')


def test_a_node_is_ready_only_if_the_driver_and_the_last_result_say_so() -> None:
    good = simulated.sound(1, random.Random(1))
    bad, _ = simulated.plant(good, "stuck-bit", 2)
    slow, _ = simulated.plant(good, "power-limit", 2)
    cards = good.cards
    lost = (*cards[:7], Card("GPU 7", "GPU", kind="GPU", error="GPU is lost"))
    new = tuple(replace(card, uuid=f"new-{card.uuid}", serial=f"new-{card.serial}") for card in cards)

    def reason(found: tuple[Card, ...], broken: str | None, last: RunRecord | None, gpus: int | None) -> str:
        answer = judge_node(found, broken, last, gpus, NOW, Policy())
        return f"{'' if answer.ready else 'NOT '}{answer.reason}"

    assert reason(cards, None, good, 8) == "8 GPUs; PASS in the run of 2026-11-01T08:00:00+00:00"
    assert reason(cards, None, None, None) == "8 GPUs; no earlier result"
    assert reason(cards, None, slow, 8).startswith("8 GPUs; ")
    assert reason(cards, "no answer within 15 s", good, 8) == "NOT the driver does not answer: no answer within 15 s"
    assert reason(lost, None, good, 8) == "NOT GPU 7: GPU is lost"
    assert reason(cards[:7], None, good, 8) == "NOT the driver reports 7 GPUs instead of 8"
    assert reason(cards, None, bad, 8).startswith("NOT replace: GPU:2 (serial 1650000012")
    assert "\n" not in reason(cards, None, bad, 8)
    assert reason(new, None, bad, 8).startswith("8 GPUs"), "a card that was replaced took its fault with it"
    old = judge_node(cards, None, good, 8, NOW, Policy(), most_days=1.0)
    assert (old.ready, old.reason) == (False, "the last result, of 2026-11-01T08:00:00+00:00, is older than 1 days")
    assert not judge_node(cards, None, None, 8, NOW, Policy(), most_days=1.0).ready


def test_a_driver_that_never_answers_costs_the_limit_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver_cards, "_PROGRAM", "import time; time.sleep(600)")
    assert driver_cards.ask(0.3) == ((), "no answer within 0.3 s")
    monkeypatch.setattr(driver_cards, "_PROGRAM", "raise SystemExit(3)")
    assert driver_cards.ask(60.0) == ((), "asking it ended with exit code 3")
    assert last_run(tmp_path) is None


def _documents(**facts: object) -> list[dict[str, object]]:
    wanted = Wanted("registry.example/harness:1", 3, 8, arguments=("--level", "standard"))
    return manifests(replace(wanted, **facts))  # type: ignore[arg-type]


def test_a_job_has_one_pod_on_each_node_with_all_of_its_gpus() -> None:
    priority, job, condition, daemons = _documents(selector=("pool=gpu",))
    assert [each["kind"] for each in (priority, job, condition, daemons)] == [
        "PriorityClass", "Job", "ConfigMap", "DaemonSet",
    ]  # fmt: skip
    text = as_yaml([job])
    for line in (
        "completionMode: Indexed",
        "completions: 3",
        '"nvidia.com/gpu": "8"',
        'topologyKey: "kubernetes.io/hostname"',
    ):
        assert line in text
    assert "nvidia.com/gpu" not in as_yaml([_documents(gpus=0)[1]]).partition("tolerations")[0]
    assert "claimName: records" in as_yaml([_documents(claim="records")[1]])
    for wrong in ({"nodes": 0}, {"gpus": -1}, {"selector": ("pool",)}):
        with pytest.raises(UsageError, match="accepted"):
            _documents(**wrong)


def test_words_that_yaml_takes_for_something_else_are_in_quotes() -> None:
    text = as_yaml([{"a": "yes", "b": "no: thing", "c": ["-c", "null", {"d": "x", "e": []}], "1": "x\ny", "f": True}])
    assert text == (
        '---\na: "yes"\nb: "no: thing"\nc:\n  - "-c"\n  - "null"\n  - d: x\n    e: []\n"1": "x\\ny"\nf: true\n'
    )


@pytest.mark.parametrize("version", ["1.29", "1.31", "1.33"])
def test_the_manifests_are_valid_in_several_versions(version: str) -> None:
    if find_spec("kubernetes_validate") is None:
        if os.environ.get("HARNESS_REQUIRE_FLEET") == "1":
            pytest.fail("kubernetes-validate is not installed")
        pytest.skip("kubernetes-validate is not installed")
    import kubernetes_validate

    for facts in ({}, {"claim": "records"}, {"gpus": 0}):
        for document in _documents(**facts):
            kubernetes_validate.validate(document, version, strict=True)


def test_metrics_are_lines_that_the_collector_reads_whatever_a_record_holds() -> None:
    record, _ = simulated.plant(simulated.sound(1, random.Random(1)), "stuck-bit", 2)
    for each in (record, samples.hostile(), samples.eight_cards(), samples.empty(), samples.incomplete()):
        lines = metrics_text(each).splitlines()
        wrong = [line for line in lines if not line.startswith("# ") and not _SAMPLE.fullmatch(line)]
        assert wrong == []
        assert len(set(lines)) == len(lines), "no sample twice"
    text = metrics_text(record)
    assert re.search(r'action="replace",.*} 1\.0', text)
    assert "harness_run_failed 1.0" in text
    assert "165000001" in text
    assert "165000001" not in metrics_text(record, anonymous=True)
    assert "harness_run_complete 0.0" in metrics_text(samples.incomplete())
    assert all(name in text for name in re.findall(r"harness_\w+", ALERT_RULES))


def test_the_policy_that_is_documented_can_be_read_and_slips_are_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    lines = (policy_module.__doc__ or "").splitlines()
    path.write_text("\n".join(line[4:] for line in lines if line.startswith("    ")), encoding="utf-8")
    read = load_policy(path)
    assert read.xid.actions == {"94": Action.RESET}
    assert (read.expect[0].at_least, str(read.accept[0].until)) == (600_000, "2027-06-30")
    assert load_policy(None) == Policy()
    for text, why in (
        ("[judgng]", r"only the keys .* \(did you mean 'judging'\?\)"),
        ("[plan]\nmost_shares = 0.5", "did you mean 'most_share'"),
        ("[plan]\nmost_share = 50", "a number above 0, up to 1"),
        ('[xid]\nactions = { "94" = "rest" }', "one of replace, reseat, reset"),
        ('[[accept]]\nmachine = "a"', "reason is missing"),
        ('[[accept]]\nreason = "a"\nkind = "lnk"', "one of structure"),
        ('[[expect]]\nmodel = "a"\nfigure = "b"\nunit = "c"\nsource = "d"', "expect"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidPolicy, match=why):
            load_policy(path)


def test_a_record_that_failed_without_a_finding_needs_somebody_to_look() -> None:
    record = simulated.sound(1, random.Random(1))
    crashed = replace(record.results[2], verdict=Verdict.FAIL, reason="its process crashed (SIGSEGV)")
    record = replace(record, results=(*record.results[:2], crashed, *record.results[3:]), verdict=Verdict.FAIL)
    answer = judge_node(record.cards, None, record, 8, NOW, Policy())
    assert answer.reason.startswith("drain: the machine: memory: its process crashed (SIGSEGV)")
