"""The marker ``@pytest.mark.devices(min=…, kind=…)``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]


def test_the_marker_is_registered_and_explained(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    from harness.devices.needs import KINDS

    pytester.makepyfile("import pytest\n\n@pytest.mark.devices(min=2)\ndef test_it(): pass\n")
    result = inner_pytest("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.devices(min=1, kind=None): *"])
    line = next(line for line in result.stdout.lines if line.startswith("@pytest.mark.devices"))
    assert all(kind in line for kind in KINDS)
    inner_pytest("--strict-markers").assert_outcomes(passed=1)


@pytest.mark.parametrize("arguments", [(), ("-n", "1")])
def test_a_test_runs_where_its_needs_are_met_and_is_skipped_where_not_with_the_reason(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    path = pytester.makepyfile(
        """
        import pytest

        @pytest.mark.devices(min=2, kind="gpu")
        def test_gpus():
            pass

        @pytest.mark.devices(min=3, kind=["gpu", "logical-cpu"])
        def test_three():
            pass

        @pytest.mark.devices(min=5)
        def test_five(devices):
            pass

        @pytest.mark.devices(kind="logical-cpu")
        class TestClass:
            def test_inherits(self):
                pass

            @pytest.mark.devices(min=9)
            def test_needs_both(self):
                pass
        """
    )
    result = inner_pytest("-rs", "--harness-devices=cpu:4", *arguments)
    result.assert_outcomes(passed=2, skipped=3)
    there = "configured: 4 logical-cpu devices from cpu:4 (--harness-devices)"
    result.stdout.fnmatch_lines_random(
        [
            f"SKIPPED [[]1[]] {path.name}:3: needs 2 gpu devices; {there}",
            f"SKIPPED [[]1[]] {path.name}:11: needs 5 devices; {there}",
            f"SKIPPED [[]1[]] {path.name}:20: needs 9 devices; {there}",
        ]
    )
    result = inner_pytest("-rs", "--harness-devices=gpu:2", *arguments, gpus=8)
    result.assert_outcomes(passed=1, skipped=4)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("2", "devices(2): the marker takes keyword arguments only"),
        ("minimum=2", "devices(minimum=2): unknown argument minimum"),
        ("min='2'", "devices(min='2'): min='2' is not a valid number of devices"),
        ("min=0", "devices(min=0): min=0 is not a valid number of devices"),
        ("kind='tpu'", "devices(kind='tpu'): kind='tpu' is unknown"),
        ("kind=()", "devices(kind=()): kind=() names no kind"),
    ],
)
def test_a_marker_that_is_written_wrongly_fails_its_test_before_tensorflow_is_loaded(
    pytester: pytest.Pytester, inner_pytest: Session, written: str, why: str
) -> None:
    pytester.makepyfile(
        f"""
        import sys
        import pytest

        @pytest.mark.devices({written})
        def test_wrong():
            pass

        def test_right():
            assert "tensorflow" not in sys.modules
        """
    )
    result = inner_pytest()
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([f"@pytest.mark.{why}; accepted: devices(min=N, kind=K) *"])
    result.stdout.no_fnmatch_line("*During handling of the above exception*")


def test_a_test_that_is_skipped_anyway_does_not_load_tensorflow(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.mark.skip
        @pytest.mark.devices(min=2)
        def test_skipped():
            pass

        def test_plain():
            assert "tensorflow" not in sys.modules
        """
    )
    inner_pytest().assert_outcomes(skipped=1, passed=1)


def test_a_project_that_has_a_fixture_called_devices_keeps_it(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile(
        """
        import sys
        import pytest

        @pytest.fixture
        def devices():
            return "mine"

        def test_it(devices):
            assert devices == "mine"
            assert "tensorflow" not in sys.modules
        """
    )
    result = inner_pytest()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("=* harness =*")
