"""``--harness-devices``, ``HARNESS_DEVICES``, the ini key ``harness_devices``, and the settings of the project."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]

_TEST = """
    def test_devices(devices):
        print(f"there: {len(devices)} x {devices[0].kind}, {devices.spec}")
"""
_PROFILE = 'schema_version = 1\nspec = "cpu:5"\n'


def _ini(pytester: pytest.Pytester, spec: str) -> None:
    pytester.makeini(f"[pytest]\nharness_devices = {spec}\n")


def test_without_any_of_them_the_devices_are_chosen_for_the_machine(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_TEST)
    result = inner_pytest("-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "harness: devices auto (default)",
            "*there: 4 x logical-cpu, auto*",
            "=* harness =*",
            "4 logical-cpu devices from auto (default): auto selected cpu:4: no GPU found",
        ]
    )
    result = inner_pytest("-s", gpus=2)
    result.stdout.fnmatch_lines(
        ["*there: 2 x gpu, auto*", "2 gpu devices from auto (default): auto selected gpu: found 2 real GPUs*"]
    )


def test_the_command_line_wins_over_the_environment_and_that_over_the_ini_file(
    pytester: pytest.Pytester, inner_pytest: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(_TEST)
    _ini(pytester, "cpu:2")
    result = inner_pytest("-s")
    result.stdout.fnmatch_lines(["harness: devices cpu:2 (ini key harness_devices)", "*there: 2 x logical-cpu, cpu:2*"])
    monkeypatch.setenv("HARNESS_DEVICES", "cpu:3")
    result = inner_pytest("-s")
    result.stdout.fnmatch_lines(
        ["harness: devices cpu:3 (environment variable HARNESS_DEVICES)", "*there: 3 x logical-cpu, cpu:3*"]
    )
    result = inner_pytest("-s", "--harness-devices=cpu:6")
    result.stdout.fnmatch_lines(
        [
            "harness: devices cpu:6 (--harness-devices)",
            "*there: 6 x logical-cpu, cpu:6*",
            "6 logical-cpu devices from cpu:6 (--harness-devices): 6 logical CPUs, as requested",
        ]
    )
    monkeypatch.setenv("HARNESS_DEVICES", "")
    result = inner_pytest()
    result.stdout.fnmatch_lines(["harness: devices cpu:2 (ini key harness_devices)"])


def test_a_shipped_profile_is_named_with_an_at_sign(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile(_TEST)
    result = inner_pytest("-s", "--harness-devices=@cpu-8")
    result.stdout.fnmatch_lines(["*there: 8 x logical-cpu, @cpu-8*"])


def test_a_profile_file_is_found_from_where_it_is_named(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    """On the command line from the working directory, in the ini file from that file."""
    pytester.mkdir("setups").joinpath("mine.toml").write_text(_PROFILE, encoding="utf-8")
    tests = pytester.mkdir("tests")
    tests.joinpath("test_it.py").write_text("def test_it(devices):\n    assert len(devices) == 5\n", "utf-8")
    inner_pytest("--harness-devices=setups/mine.toml").assert_outcomes(passed=1)
    _ini(pytester, "setups/mine.toml")
    pytester.chdir()
    inner_pytest("tests").assert_outcomes(passed=1)
    inner_pytest("--rootdir", str(pytester.path), "-c", str(pytester.path / "tox.ini"), str(tests)).assert_outcomes(
        passed=1
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_workers_of_xdist_have_the_same_devices_and_the_controller_tells(
    pytester: pytest.Pytester, inner_pytest: Session, workers: str
) -> None:
    pytester.mkdir("setups").joinpath("mine.toml").write_text(_PROFILE, encoding="utf-8")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_devices(devices, number):
            assert len(devices) == 5
        """
    )
    result = inner_pytest("-n", workers, "--harness-devices=setups/mine.toml")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "harness: devices setups/mine.toml (--harness-devices)",
            "5 logical-cpu devices from setups/mine.toml (--harness-devices): 5 logical CPUs, as requested",
        ]
    )
    _ini(pytester, "setups/mine.toml")
    inner_pytest("-n", workers).assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cpu:0", "ERROR: device spec 'cpu:0': at least 1 device is needed; accepted: *(from --harness-devices)"),
        ("", "ERROR: device spec '': it is empty; accepted: *"),
        ("tpu", "ERROR: device spec 'tpu': unknown; accepted: *"),
        ("@cpu-3", "ERROR: device spec '@cpu-3': no such profile; accepted: @cpu-2, *"),
        ("no.toml", "ERROR: device spec 'no.toml': the profile cannot be read (No such file or directory)*"),
        ("bad.toml", "ERROR: profile bad.toml: speck = 'gpu'; accepted: *did you mean 'spec'?*"),
    ],
)
def test_a_spec_that_is_not_valid_is_one_line_and_exit_code_4_before_anything_is_loaded(
    pytester: pytest.Pytester, inner_pytest: Session, spec: str, message: str
) -> None:
    pytester.makefile(".toml", bad='schema_version = 1\nspeck = "gpu"\n')
    pytester.makepyfile(_TEST)
    pytester.path.joinpath("fake", "tensorflow.py").write_text("raise SystemExit('loaded')", encoding="utf-8")
    result = inner_pytest(f"--harness-devices={spec}", *(("-n", "1") if spec == "cpu:0" else ()))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    assert "Traceback" not in result.stderr.str()
    assert "loaded" not in result.stderr.str() + result.stdout.str()


def test_a_bad_spec_in_the_environment_or_the_ini_file_says_where_it_is(
    pytester: pytest.Pytester, inner_pytest: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ini(pytester, "cpu:none")
    result = inner_pytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*(from ini key harness_devices)"])
    monkeypatch.setenv("HARNESS_DEVICES", "cpu:nil")
    result = inner_pytest()
    result.stderr.fnmatch_lines(["*(from environment variable HARNESS_DEVICES)"])


@pytest.mark.parametrize("arguments", [(), ("-n", "1")])
def test_devices_that_were_asked_for_and_are_not_there_are_an_error_and_never_a_skip(
    pytester: pytest.Pytester, inner_pytest: Session, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_fixture(devices):
            pass

        @pytest.mark.devices(min=1, kind="gpu")
        def test_marker():
            pass

        def test_neither():
            pass
        """
    )
    result = inner_pytest("--harness-devices=gpu", *arguments)
    result.assert_outcomes(errors=2, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["DevicesUnavailable: device spec 'gpu' needs 1 real GPU; available: CPU:0; * (devices gpu, --harness-devices)"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*plugin.py*")


def test_a_test_file_may_start_tensorflow_when_it_is_imported_if_the_devices_are_named(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(
        """
        import tensorflow as tf
        tf.config.list_logical_devices()

        def test_devices(devices):
            assert len(tf.config.list_logical_devices()) == len(devices)
        """
    )
    inner_pytest("--harness-devices=cpu:2").assert_outcomes(passed=1)
    result = inner_pytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "DevicesAlreadyConfigured: devices are already configured as ?CPU devices: 1;*",
            "TensorFlow was started by the import of a conftest.py or a test file; move the code that starts it into *",
        ]
    )


def test_a_test_that_loads_and_starts_tensorflow_too_early_is_named(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    path = pytester.makepyfile(
        """
        def test_early():
            import tensorflow as tf
            tf.config.list_logical_devices()

        def test_between():
            pass

        def test_devices(devices):
            pass
        """
    )
    result = inner_pytest()
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines([f"TensorFlow was started by {path.name}::test_early; let this test use the fixture *"])
    inner_pytest("-k", "devices").assert_outcomes(passed=1, deselected=2)
    inner_pytest("--harness-devices=cpu:2").assert_outcomes(passed=3)


def test_a_test_that_uses_tensorflow_by_itself_does_not_spoil_the_devices_of_a_later_one(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(
        """
        import tensorflow as tf

        def test_alone():
            assert len(tf.config.list_logical_devices("CPU")) == 2

        def test_after(devices):
            assert len(devices) == 2
        """
    )
    inner_pytest("--harness-devices=cpu:2").assert_outcomes(passed=2)
    inner_pytest("--harness-devices=cpu:2", "-k", "alone").assert_outcomes(passed=1, deselected=1)


def test_the_settings_of_the_project_come_last_and_hold_what_it_accepts(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyprojecttoml(
        """
        [tool.harness]
        devices = "cpu:2"
        [[tool.harness.accept]]
        finding = "H202"
        reason = "the tower may wait"
        """
    )
    pytester.makepyfile(
        _TEST
        + """
    def test_accepted():
        from harness import session
        assert session.accept == (("H202", "the tower may wait"),)
        """
    )
    result = inner_pytest("-s")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["harness: devices cpu:2 (tool.harness in pyproject.toml)", "*there: 2 x logical-cpu*"])
    pytester.makepyprojecttoml("[tool.harness]\ndevice = 'cpu:2'\n")
    refused = inner_pytest()
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*tool.harness.device = 'cpu:2'; accepted: only the keys devices*"])
