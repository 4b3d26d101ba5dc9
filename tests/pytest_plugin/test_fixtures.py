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
    from harness.records import Exercised, Finding
    from harness.session import observed

    @dataclass(frozen=True)
    class Verification:
        devices: object
        options: object
        exercised: Exercised
        verdict: str
        reason: str = "one finding"
        proof: object = None

        @property
        def findings(self):
            message = "accepted (why): elsewhere"
            return [Finding("gradient-placement", "", None, "", "", message)] if self.verdict == "WARN" else []

        @property
        def passed(self):
            return self.verdict in ("PASS", "WARN")

    def verify(parallel, reference, inputs, *, devices, **options):
        exercised = Exercised(programs=1, values=3, devices=devices.names)
        return observed(Verification(devices, options, exercised, inputs.get("verdict", "PASS")))

    def assert_parallel(*args, **kwargs):
        verification = verify(*args, **kwargs)
        assert verification.passed, "not parallel"
        return verification

    def trace(fn, *args, **kwargs):
        return fn(*args, **kwargs)

    for name, functions in (("judgement.verify", (verify, assert_parallel)), ("evidence.tracing", (trace,))):
        module = types.ModuleType(f"harness.{name}")
        for function in functions:
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
    result.stdout.fnmatch_lines(["2 verifications: 2 programs, 6 values on 2 devices"])


def test_each_mode_has_an_id_of_its_own_if_that_is_asked_for(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makeconftest(_STAND_INS)
    pytester.makepyfile(
        """
        def test_a(verify):
            print("a", verify(None, None, {}).options)

        def test_b(verify):
            print("b", verify(None, None, {}, modes=["graph"]).options)

        def test_plain():
            pass
        """
    )
    result = inner_pytest("--harness-devices=cpu:2", "--harness-modes=eager,graph", "-s", "-v", "-rs")
    result.assert_outcomes(passed=4, skipped=1)
    for line in (
        "::test_a[eager] a {'modes': ['eager']}",
        "::test_a[graph] a {'modes': ['graph']}",
        "::test_b[graph] b {'modes': ['graph']}",
        "::test_plain PASSED",
        "this verification does not run in the mode eager",
    ):
        assert line in result.stdout.str()
    wrong = pytester.runpytest_subprocess("-p", "harness.pytest_plugin.plugin", "--harness-modes=eager,compiled")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*--harness-modes=eager,compiled; accepted: one or more of eager,graph,dynamic"])


def test_the_devices_are_the_same_object_in_the_whole_session(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    for name in ("test_one", "test_two"):
        pytester.makepyfile(
            **{
                name: """
                from harness.devices.runtime import configure

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
    result.stdout.fnmatch_lines(["5 verifications: *"])


def test_without_the_plug_in_a_test_that_uses_a_fixture_is_an_error(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile("def test_it(verify):\n    pass\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*fixture 'verify' not found*"])


_IGNORED = """
    import pytest

    BAD = {"verdict": "FAIL"}

    def test_checked(verify):
        verify(None, None, BAD)

    def test_ignored(verify):
        verify(None, None, BAD, check=False)

    def test_library_result_ignored(devices):
        import harness
        harness.verify(None, None, BAD, devices=devices)

    def test_fails_for_its_own_reason(verify):
        verify(None, None, BAD, check=False)
        raise ValueError("own reason")

    @pytest.fixture(scope="module")
    def shared(verify):
        return verify(None, None, BAD, check=False)

    def test_fixture_ignored(shared):
        pass

    @pytest.fixture
    def own(verify):
        return verify(None, None, BAD, check=False)

    def test_own_fixture_ignored(own):
        pass

    def test_printed(verify):
        result = verify(None, None, BAD, check=False)
        print(result, f"{result}", repr(result))
        assert "Verification" in str(result)

    def test_the_last():
        pass
"""
_READ = """
    import pickle
    import pytest

    BAD = {"verdict": "FAIL"}

    def test_read(verify):
        result = verify(None, None, BAD, check=False)
        assert not result.passed
        assert type(pickle.loads(pickle.dumps(result))).__mro__[1] is object

    def test_raised(verify):
        with pytest.raises(AssertionError, match="not parallel"):
            verify(None, None, BAD)

    def test_good(verify):
        verify(None, None, {}, check=False)

    @pytest.fixture(scope="module")
    def shared(verify):
        return verify(None, None, BAD, check=False)

    def test_does_not_read_it_yet(shared):
        pass

    def test_reads_it(shared):
        assert shared.verdict == "FAIL"

    @pytest.fixture
    def own(verify):
        return verify(None, None, BAD, check=False)

    def test_reads_its_own(own):
        assert not own.passed

    @pytest.fixture
    def reading(verify):
        result = verify(None, None, BAD, check=False)
        yield
        assert not result.passed

    def test_whose_fixture_reads(reading):
        pass
"""


def test_a_verification_that_did_not_pass_and_was_not_read_fails_its_test(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makeconftest(_STAND_INS)
    pytester.makepyfile(_IGNORED)
    result = inner_pytest("--harness-devices=cpu:2")
    result.assert_outcomes(passed=3, failed=5, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*AssertionError: not parallel",
            "a verification did not pass, and the test did not read its result: FAIL: one finding",
            "*ValueError: own reason",
            "*ERROR at teardown of test_own_fixture_ignored*",
            "*did not read its result: FAIL: one finding (in a fixture, setup of *::test_own_fixture_ignored)",
            "*ERROR at teardown of test_the_last*",
            "*did not read its result: FAIL: one finding (in a fixture, setup of *::test_fixture_ignored)",
            "*_ test_printed _*",
            "7 of them did not pass:",
        ]
    )


def test_a_verification_whose_result_is_read_may_end_in_any_way(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makeconftest(_STAND_INS)
    pytester.makepyfile(_READ)
    result = inner_pytest("--harness-devices=cpu:2")
    result.assert_outcomes(passed=7)
    result.stdout.fnmatch_lines(["6 verifications: *", "5 of them did not pass:"])


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_a_verification_that_passes_with_warnings_is_in_the_summary(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makeconftest(_STAND_INS)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(12))
        def test_warned(verify, number):
            assert verify(None, None, {"verdict": "WARN"}, check=False).verdict == "WARN"

        def test_good(verify):
            verify(None, None, {})
        """
    )
    result = inner_pytest("--harness-devices=cpu:2", *arguments)
    result.assert_outcomes(passed=13)
    warned = "  *::test_warned?*?: one finding; ?H202 gradient-placement? accepted (why): elsewhere"
    result.stdout.fnmatch_lines(["12 of them passed with warnings:", *[warned] * 10, "  and 2 more"])
    result = inner_pytest("--harness-devices=cpu:2", "-k", "good", *arguments)
    result.stdout.no_fnmatch_line("*passed with warnings*")


def test_trainings_use_the_devices_of_the_session_and_are_counted(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(
        steps="def build():\n    pass\n",
        test_it="""
        import numpy as np
        import pytest
        import steps
        from harness.distribute import run

        DATA = np.ones((8, 1), np.float32), np.ones((8, 1), np.float32)

        @pytest.fixture
        def trained(monkeypatch):
            specs = []
            def ask(job, files, limit_s):
                specs.append(job.arguments["spec"])
                exercised = {"programs": 1, "values": 5, "devices": ["/device:CPU:0"]}
                verdict = "PASS" if job.arguments["training"].steps == 3 else "FAIL"
                return {
                    "verdict": verdict, "reason": "training", "findings": [], "exercised": exercised,
                    "comparisons": [], "strategy": "mirrored", "loops": ["custom"], "steps": 3, "collectives": [],
                    "measured": {},
                }
            monkeypatch.setattr(run, "ask", ask)
            return specs

        def test_devices_of_the_session(trained):
            assert run.equivalent("mirrored", steps.build, DATA, 3).passed
            run.equivalent("mirrored", steps.build, DATA, 3, devices="cpu:3")
            assert trained == ["cpu:4", "cpu:3"]

        def test_ignored(trained):
            run.equivalent("mirrored", steps.build, DATA, 2)
        """,
    )
    result = inner_pytest("--harness-devices=cpu:4")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["3 verifications: 3 programs, 15 values on 1 device", "1 of them did not pass:"])
