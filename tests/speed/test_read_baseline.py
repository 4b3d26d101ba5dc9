from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import FINGERPRINT, record, saved, write

from harness.errors import InvalidBaseline
from harness.speed.baseline import parse_run, read_run


def test_a_saved_run_is_read_as_it_was_measured(tmp_path: Path) -> None:
    one, other = record(1.9, seed=1), record(1.2, seed=2, second=1.1)
    found = read_run(write(tmp_path / "run.json", {"a.py::one": one, "a.py::other": other}))
    assert dict(found.records) == {"a.py::one": one, "a.py::other": other}
    assert found.fingerprint == FINGERPRINT
    assert found.without == ()


def test_benchmarks_without_a_speedup_are_named_and_left_out() -> None:
    content = saved({"with": record()})
    content["benchmarks"].append({"fullname": "plain", "extra_info": {}})
    disabled = saved({"disabled": record()})["benchmarks"][0]
    disabled["extra_info"]["harness"].update(stopped="disabled", single_ns=[], parallel_ns=[])
    content["benchmarks"].append(disabled)
    found = parse_run(content, "here")
    assert list(found.records) == ["with"]
    assert found.without == ("plain", "disabled")


def test_a_run_without_a_fingerprint_has_none() -> None:
    assert parse_run(saved({"a": record()}, None), "here").fingerprint is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidBaseline, match=r"gone\.json: No such file or directory; accepted: a pytest-bench"):
        read_run(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        (" \n", "is not JSON"),
        ('{"benchmarks": [', "is not JSON"),
        ("[]", "is not a pytest-benchmark run"),
        ('{"benchmarks": []}', "has no speedup: no benchmark in it"),
        ('{"benchmarks": [{"fullname": "a", "extra_info": {}}]}', "has no speedup: no benchmark in it used"),
        ('{"benchmarks": [3]}', "is damaged: benchmark 0 has no fullname"),
    ],
)
def test_what_is_no_run_with_speedups_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidBaseline, match=why):
        read_run(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidBaseline, match="is not JSON"):
        read_run(path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda plain: plain.pop("schema_version"), "has no schema_version"),
        (lambda plain: plain.update(schema_version=True), "has no schema_version"),
        (lambda plain: plain.update(schema_version=99), "has schema_version 99, newer than 1: upgrade the harness"),
        (lambda plain: plain.pop("gates"), "is damaged: gates"),
        (lambda plain: plain.update(single_ns="soon"), "is damaged: single_ns"),
        (lambda plain: plain["single_ns"].pop(), "hold 59 and 60 measured times, which are not pairs"),
        (lambda plain: plain.update(second_single_ns=[1]), "second_single_ns and second_parallel_ns hold 1 and 0"),
        (lambda plain: plain["single_ns"].__setitem__(3, 0), "at least 5 pairs of times above 0 ns"),
        (lambda plain: plain.update(single_ns=[1] * 4, parallel_ns=[1] * 4), "at least 5 pairs"),
        (lambda plain: plain.update(single_ns=[], parallel_ns=[]), "the speedup has no times"),
    ],
)
def test_a_damaged_speedup_is_refused_by_name(damage: Callable[[dict[str, Any]], object], why: str) -> None:
    content = json.loads(json.dumps(saved({"a.py::one": record()})))
    parse_run(content, "here")
    damage(content["benchmarks"][0]["extra_info"]["harness"])
    with pytest.raises(InvalidBaseline, match=why) as caught:
        parse_run(content, "here")
    assert str(caught.value).startswith("here: a.py::one")


def test_a_damaged_fingerprint_is_refused() -> None:
    content = json.loads(json.dumps(saved({"a": record()})))
    content["machine_info"]["harness"]["devices"] = 3
    with pytest.raises(InvalidBaseline, match="here: machine_info: is damaged: devices"):
        parse_run(content, "here")
