"""What the wheel has installed."""

from __future__ import annotations

import json
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

from installed import NAME, run

import harness

_PROFILES = ("cpu-2", "cpu-4", "cpu-8", "gpu-all", "gpu-logical-2")


def test_it_is_the_installed_package_that_is_tested() -> None:
    package = Path(harness.__file__).resolve().parent
    assert package == Path(sysconfig.get_paths()["purelib"]).resolve() / "harness"
    assert not Path("harness").exists()
    assert distribution(NAME).version == harness.__version__


def test_type_checkers_find_its_types() -> None:
    assert Path(harness.__file__).with_name("py.typed").is_file()


def test_the_shipped_profiles_are_in_it() -> None:
    folder = Path(harness.__file__).with_name("_profiles") / "devices"
    assert tuple(sorted(path.stem for path in folder.glob("*.toml"))) == _PROFILES


def test_the_hardware_profiles_are_in_it() -> None:
    from harness.devices.shipped import shipped_folder
    from harness.hardware.profile import profile_for

    assert shipped_folder("hardware") == Path(harness.__file__).resolve().with_name("_profiles") / "hardware"
    found = profile_for("NVIDIA H100 80GB HBM3")
    assert found is not None
    assert found.figure("memory bandwidth") is not None


def test_what_the_report_is_made_of_is_in_it() -> None:
    folder = Path(harness.__file__).parent / "report" / "html" / "templates"
    assert {"page.html.j2", "report.html.j2", "comparison.html.j2", "style.css"} <= {
        path.name for path in folder.iterdir()
    }
    assert any((folder / "sections").glob("*.j2"))


def test_the_images_of_the_digits_are_in_it() -> None:
    from harness.checks.digits_classifier import load_images

    images, labels = load_images(0)
    assert images.shape == (1797, 8, 8, 1)
    assert (images.min(), images.max(), set(labels)) == (0, 1, set(range(10)))


def test_the_licence_is_in_it() -> None:
    files = distribution(NAME).files or []
    licences = [path for path in files if path.name == "LICENSE"]
    assert len(licences) == 1
    assert "Apache License" in licences[0].read_text()


def test_nothing_but_the_package_is_installed() -> None:
    files = distribution(NAME).files or []
    tops = {path.parts[0] for path in files if ".." not in path.parts}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"harness"}


def test_the_console_script_answers(tmp_path: Path) -> None:
    helped = run(tmp_path, "harness", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "validate" in helped.stdout
    listed = run(tmp_path, "harness", "list")
    assert listed.returncode == 0, listed.stderr
    assert "vector-add" in listed.stdout


def test_harness_devices_shows_the_machine_and_the_profiles(tmp_path: Path) -> None:
    shown = run(tmp_path, "harness", "devices")
    assert shown.returncode == 0, shown.stderr
    for name in _PROFILES:
        assert f"@{name}" in shown.stdout


def test_two_checks_pass_on_a_shipped_profile_and_leave_a_record(tmp_path: Path) -> None:
    chosen = ("--only", "devices-distinct", "--only", "vector-add")
    done = run(tmp_path, "harness", "validate", "--devices", "@cpu-2", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "harness-report" / "run.json").read_text(encoding="utf-8"))
    assert record["complete"] is True
    assert record["verdict"] == "PASS"
    assert [result["check"] for result in record["results"]] == ["devices-distinct", "vector-add"]
    assert all(result["exercised"]["ops"] for result in record["results"])
    assert len(record["fingerprint"]["devices"]) == 2
    assert "<title>PASS on " in (tmp_path / "harness-report" / "report.html").read_text(encoding="utf-8")
