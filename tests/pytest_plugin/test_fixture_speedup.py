"""The fixture ``speedup`` in a session of its own: what pytest-benchmark makes of it, and what is said without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.pytest_plugin.speed import ReplayTimer

Session = Callable[..., pytest.RunResult]

_QUICK = ("--harness-devices=cpu:2", "--harness-speedup-budget=0.05", "-p", "pytest_benchmark.plugin")
_TESTS = """
    import pytest

    @pytest.fixture
    def sides(devices):
        import tensorflow as tf

        def side(*names):
            held = []
            for name in names:
                with tf.device(name):
                    held.append(tf.Variable(tf.ones([64, 64])))
            def fn():
                total = []
                for name, matrix in zip(names, held):
                    with tf.device(name):
                        total.append(tf.reduce_sum(tf.matmul(matrix, matrix)))
                return tf.add_n(total)
            return tf.function(fn)

        return side(devices[0].name, devices[0].name), side(*devices.names)

    def test_speed(speedup, devices, sides):
        record = speedup(*sides)
        assert record.devices == devices.names
"""
_WRONG = """
    def test_wrong(speedup, devices):
        import tensorflow as tf
        speedup(lambda: tf.constant(1.0), lambda: tf.constant(2.0), devices=devices)
"""
_TWO_IN_ONE = """
    def test_two_in_one(speedup, devices, sides):
        speedup(*sides, devices=devices)
        speedup(*sides, devices=devices)
"""
_ITS_OWN = """
    import pytest

    @pytest.mark.benchmark(group="mine")
    def test_both(speedup, benchmark):
        benchmark.pedantic(sum, args=([1, 2],), rounds=7)
"""


def _benchmarks(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_record_and_the_fingerprint_are_in_the_json(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest(*_QUICK, "--benchmark-json=all.json", real=True)
    result.assert_outcomes(passed=1)
    written = _benchmarks(pytester.path / "all.json")
    [benchmark] = written["benchmarks"]
    record = benchmark["extra_info"]["harness"]
    assert benchmark["fullname"].endswith("::test_speed")
    assert record["devices"] == [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(2)]
    assert benchmark["stats"]["rounds"] == len(record["parallel_ns"]) == len(record["single_ns"])
    assert benchmark["stats"]["data"] == pytest.approx([time / 1e9 for time in record["parallel_ns"]])
    assert benchmark["stats"]["iterations"] == 1
    assert record["budget_s"] == 0.05
    assert record["wanted_half_width"] == 0.01
    assert written["machine_info"]["harness"]["spec"] == "cpu:2"
    result.stdout.fnmatch_lines(
        [
            "*= speedups =*",
            "*speedup *interval *efficiency *pairs *stopped*",
            "*::test_speed",
            "* to *%*",
            "  *logical CPUs*",
        ]
    )


def test_saved_runs_are_compared_as_ever_and_without_a_word_on_the_machine_and_options_are_what_is_asked_for(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_TESTS)
    precise = "--harness-speedup-precision=90%"
    inner_pytest(*_QUICK, "--benchmark-autosave", precise, real=True).assert_outcomes(passed=1)
    [saved] = pytester.path.glob(".benchmarks/*/0001_*.json")
    once = _benchmarks(saved)["benchmarks"][0]["extra_info"]["harness"]
    assert once["single_ns"]
    assert once["second_single_ns"] == []
    assert once["wanted_half_width"] == 0.9
    twice = ("--harness-speedup-twice", "--benchmark-json=all.json")
    result = inner_pytest(*_QUICK, "--benchmark-compare", *twice, real=True)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines_random(["*test_speed (0001_*", "*test_speed (NOW)*"])
    assert "machine_info is different" not in result.stdout.str() + result.stderr.str()
    [benchmark] = _benchmarks(pytester.path / "all.json")["benchmarks"]
    record = benchmark["extra_info"]["harness"]
    assert len(record["second_single_ns"]) == len(record["second_parallel_ns"]) > 0


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--harness-speedup-budget=soon", "*--harness-speedup-budget: budget 'soon'; accepted: seconds above 0*"),
        ("--harness-speedup-precision=2", "*--harness-speedup-precision: share '2'; accepted: a percentage above 0%*"),
    ],
)
def test_an_option_that_is_not_usable_is_refused(
    pytester: pytest.Pytester, inner_pytest: Session, option: str, why: str
) -> None:
    result = inner_pytest(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([why])


def test_a_wrong_program_leaves_no_benchmark_and_a_test_of_benchmark_itself_has_the_usual_timer_and_its_marker(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_ITS_OWN + _WRONG)
    result = inner_pytest(*_QUICK, "--benchmark-json=all.json", real=True)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*OutputsDiffer: output: the values differ by more than*"])
    [benchmark] = _benchmarks(pytester.path / "all.json")["benchmarks"]
    assert benchmark["name"] == "test_both"
    assert benchmark["group"] == "mine"
    assert benchmark["stats"]["rounds"] == 7
    assert benchmark["stats"]["min"] > 0
    assert "harness" not in benchmark["extra_info"]


def test_where_benchmarks_are_disabled_both_sides_are_compared_and_nothing_is_measured(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    nothing = "        assert record.single_ns == () and not record.speedup.value > 0\n"
    pytester.makepyfile(_TESTS + nothing + _WRONG + _TWO_IN_ONE)
    result = inner_pytest(*_QUICK, "--benchmark-disable", "--benchmark-json=all.json", real=True)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["*::test_speed", "*not measured", "  ! nothing was measured: pytest-benchmark is disabled*"]
    )
    result.stdout.fnmatch_lines_random(
        [
            "*OutputsDiffer: output: the values differ by more than*",
            "*UsageError: speedup() was already called in this test; accepted: once per test*",
        ]
    )
    assert not (pytester.path / "all.json").exists()


def test_under_xdist_the_controller_says_that_nothing_was_measured(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest(*_QUICK, "-n", "1", real=True)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_speed", "  not measured"])


def test_without_pytest_benchmark_the_fixture_says_what_is_missing(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile("def test_speed(speedup):\n    pass\n\ndef test_plain():\n    pass\n")
    result = inner_pytest()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the fixture `speedup` needs pytest-benchmark: *"])


_LOOKS_TWICE = """
    from harness.pytest_plugin.speed import SECOND_LOOK

    looked = []

    def pytest_configure(config):
        config.stash[SECOND_LOOK] = look

    def look(fullname, record):
        print(f"looked at {fullname} of {len(record.single_ns)}")
        assert record.second_single_ns == ()
        return "speed" in fullname
"""


def test_whoever_wants_a_second_look_has_it_measured_again(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makeconftest(_LOOKS_TWICE)
    pytester.makepyfile(
        _TESTS + "\n    def test_other(speedup, devices, sides):\n        speedup(*sides, devices=devices)\n"
    )
    result = inner_pytest(*_QUICK, "-s", "--benchmark-json=all.json", real=True)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*looked at *::test_speed of *", "*looked at *::test_other of *"])
    records = {
        benchmark["name"]: benchmark["extra_info"]["harness"]
        for benchmark in _benchmarks(pytester.path / "all.json")["benchmarks"]
    }
    assert len(records["test_speed"]["second_single_ns"]) == len(records["test_speed"]["second_parallel_ns"]) >= 5
    assert records["test_other"]["second_single_ns"] == []


def test_the_timer_tells_of_the_times_that_it_was_given_and_then_of_the_time() -> None:
    timer = ReplayTimer()
    timer.load([1_000_000, 3_000_000])
    assert [timer() for _ in range(4)] == [0.0, 0.001, 0.0, 0.003]
    first = timer()
    assert timer() >= first > 0.0


_WHAT_AUTO_TOOK = """
    def test_speed(speedup, devices):
        import tensorflow as tf
        speedup(lambda: tf.constant(1.0), lambda: tf.constant(1.0), devices=devices)

    def test_other({fixture}):
        pass
"""
_AUTO = ("-p", "pytest_benchmark.plugin", "--harness-speedup-budget=0.05")


def test_where_all_tests_measure_auto_takes_what_a_measurement_should(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_WHAT_AUTO_TOOK.format(fixture=""))
    result = inner_pytest(*_AUTO, real=True)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*core device* from cores:* (default; measurements use cores:*"])


def test_where_another_test_uses_the_devices_auto_is_what_it_ever_is(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_WHAT_AUTO_TOOK.format(fixture="devices"))
    result = inner_pytest(*_AUTO)
    result.stdout.fnmatch_lines(["*4 logical-cpu devices from auto (default)*"])
