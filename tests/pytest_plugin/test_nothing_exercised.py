"""A session in which every test that needs devices was skipped is no success."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]

_BOTH_WAYS = pytest.mark.parametrize("arguments", [(), ("-n", "2")])

_GPU_TESTS = """
    import pytest

    @pytest.mark.devices(min=2, kind="gpu")
    def test_two():
        pass

    @pytest.mark.devices(min=4, kind="gpu")
    def test_four(devices):
        pass

    def test_without_devices():
        pass
"""


@_BOTH_WAYS
def test_all_skipped_says_unknown_and_exits_non_zero(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(_GPU_TESTS)
    result = inner_pytest(*arguments)
    result.assert_outcomes(skipped=2, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "=* harness =*",
            "UNKNOWN: nothing was exercised. All 2 tests that need devices were skipped, so this session proves *",
        ]
    )
    result.stdout.fnmatch_lines_random(
        ["  1 x Skipped: needs 2 gpu devices; *", "  1 x Skipped: needs 4 gpu devices; *"]
    )


@_BOTH_WAYS
def test_one_that_ran_is_enough_for_success(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(_GPU_TESTS)
    result = inner_pytest(*arguments, gpus=2)
    result.assert_outcomes(skipped=1, passed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*UNKNOWN*")


def test_a_failure_beside_it_stays_a_failure(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile(_GPU_TESTS.replace("test_without_devices():", "test_bad(missing_fixture):"))
    result = inner_pytest()
    result.assert_outcomes(skipped=2, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["UNKNOWN: nothing was exercised.*"])


@pytest.mark.parametrize("skip", ["@pytest.mark.skip", "@pytest.mark.xfail(run=False)", ""])
def test_skipping_for_any_other_reason_proves_as_little(
    pytester: pytest.Pytester, inner_pytest: Session, skip: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        {skip}
        def test_it(devices):
            pytest.skip("in the test")
        """
    )
    result = inner_pytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["UNKNOWN: nothing was exercised. The only test that needs devices was skipped*"])


def test_an_expected_failure_has_run(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.xfail\ndef test_it(devices):\n    assert 0\n")
    result = inner_pytest()
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("arguments", [("-m", "not devices"), ("-k", "without")])
def test_deselected_tests_are_not_missed(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(_GPU_TESTS)
    result = inner_pytest(*arguments)
    result.assert_outcomes(passed=1, deselected=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("=* harness =*")


@pytest.mark.parametrize("option", ["--collect-only", "--setup-only"])
def test_a_session_that_is_not_meant_to_run_tests_is_left_alone(
    pytester: pytest.Pytester, inner_pytest: Session, option: str
) -> None:
    pytester.makepyfile("def test_it(devices):\n    pass\n")
    assert inner_pytest(option).ret == pytest.ExitCode.OK
