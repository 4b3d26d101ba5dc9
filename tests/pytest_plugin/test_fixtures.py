"""The fixtures ``devices``, ``verify`` and ``trace``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]

#: In place of the library's own ``verify`` and ``trace``: they say what they were given.
_STAND_INS = """
    import sys
    import types
    from dataclasses import dataclass
    from harness.records import Exercised

    @dataclass
    class Verification:
        devices: object
        options: object
        exercised: Exercised
        passed: bool = True

    def verify(parallel, reference, inputs, *, devices, **options):
        return Verification(devices, options, Exercised(programs=1, values=3, devices=devices.names))

    def trace(fn, *args, **kwargs):
        return fn(*args, **kwargs)

    for name, function in (("judgement.verify", verify), ("evidence.trace", trace)):
        module = types.ModuleType(f"harness.{name}")
        setattr(module, function.__name__, function)
        sys.modules[module.__name__] = module
"""
_TESTS = """
    def test_the_devices_are_bound(devices, verify):
        verification = verify(None, None, {}, modes=("graph",))
        assert verification.devices is devices
        assert verification.options == {"modes": ("graph",)}

    def test_others_can_be_given(devices, verify):
        assert verify(None, None, {}, devices=devices[:1]).devices == devices[:1]
        assert verify.__name__ == "verify"

    def test_trace_is_the_librarys(trace):
        import harness
        assert trace is harness.trace
        assert harness.devices.runtime.current() is not None
"""


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_verify_has_the_devices_and_what_it_exercised_is_told(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makeconftest(_STAND_INS)
    pytester.makepyfile(_TESTS)
    result = inner_pytest("--harness-devices=cpu:2", *arguments)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["2 verification(s): 2 program(s), 6 value(s), *proven on 2 device(s)"])


def test_the_devices_are_the_same_object_in_the_whole_session(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    for name in ("test_one", "test_two"):
        pytester.makepyfile(
            **{
                name: """
                from harness.devices import configure

                def test_it(devices):
                    assert configure("cpu:2") is devices
                """
            }
        )
    inner_pytest("--harness-devices=cpu:2").assert_outcomes(passed=2)


def test_they_can_be_used_under_hypothesis(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    """Hypothesis refuses fixtures that are made anew for each test function."""
    pytester.makeconftest(_STAND_INS)
    pytester.makepyfile(
        """
        from hypothesis import given, settings, strategies

        @settings(max_examples=5, database=None)
        @given(number=strategies.integers())
        def test_it(verify, trace, devices, number):
            assert verify(None, None, {}).devices is devices
        """
    )
    result = inner_pytest("--harness-devices=cpu:2", "-p", "_hypothesis_pytestplugin")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["5 verification(s): *"])


def test_without_the_plug_in_a_test_that_uses_a_fixture_is_an_error(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile("def test_it(verify):\n    pass\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*fixture 'verify' not found*"])
