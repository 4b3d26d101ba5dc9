"""``--harness-require``: a test that would be skipped for lack of devices fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]

_TESTS = """
    import pytest

    @pytest.mark.devices(min=2, kind="gpu")
    def test_gpus():
        pass

    @pytest.mark.devices(min=2)
    def test_any():
        pass

    @pytest.mark.skip(reason="for another reason")
    def test_skipped(devices):
        pass
"""


@pytest.mark.parametrize("arguments", [(), ("-n", "1")])
def test_without_it_the_test_is_skipped(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest(*arguments)
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("arguments", [(), ("-n", "1")])
def test_with_it_the_test_fails_and_says_why_and_other_skips_stay_skips(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest("--harness-require", *arguments)
    result.assert_outcomes(passed=1, skipped=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "needs 2 gpu devices; configured: 4 logical-cpu *; --harness-require turns this skip into a failure",
        ]
    )


def test_with_it_a_test_whose_needs_are_met_passes(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile(_TESTS)
    inner_pytest("--harness-require", gpus=2).assert_outcomes(passed=2, skipped=1)
