from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import shipped
from harness.devices.kinds.auto import AutoSpec
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.logical_gpu import LogicalGpuSpec
from harness.devices.plan import Options
from harness.devices.profile import (
    find_profile,
    load_profile,
    shipped_profile_names,
    shipped_profiles,
)
from harness.devices.request import resolve
from harness.devices.shipped import shipped_folder
from harness.devices.spec import ShippedProfile
from harness.errors import InvalidProfile, InvalidSpec

_HEAD = 'schema_version = 1\nspec = "gpu"\n'


def _write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_profiles_are_there_and_valid() -> None:
    assert shipped_profile_names() == ("cpu-2", "cpu-4", "cpu-8", "gpu-all", "gpu-logical-2")
    by_name = {profile.name: profile for profile in shipped_profiles()}
    assert by_name["cpu-2"].spec == CpuSpec(2)
    assert by_name["cpu-4"].spec == CpuSpec(4)
    assert by_name["cpu-8"].spec == CpuSpec(8)
    assert by_name["gpu-all"].spec == GpuSpec()
    assert by_name["gpu-logical-2"].spec == LogicalGpuSpec(2, 2048)
    for profile in by_name.values():
        assert profile.description
        assert not profile.options.soft_placement
        assert "#" in profile.path.read_text(encoding="utf-8"), "a shipped profile explains itself"


def test_a_cpu_profile_asks_for_what_its_spec_alone_asks_for() -> None:
    for count in (2, 4, 8):
        assert resolve(f"@cpu-{count}").spec == resolve(f"cpu:{count}").spec
        options = resolve(f"@cpu-{count}").options
        assert options == Options(intra_op_threads=1, inter_op_threads=count)


def test_an_installed_wheel_has_the_profiles_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = shipped_folder("devices")
    package, elsewhere = tmp_path / "_profiles", tmp_path / "none"
    installed = package / "devices"
    installed.mkdir(parents=True)
    (installed / "cpu-4.toml").write_bytes((checkout / "cpu-4.toml").read_bytes())
    monkeypatch.setattr(shipped, "_FOLDERS", (package, elsewhere))
    assert find_profile(ShippedProfile("cpu-4")) == installed / "cpu-4.toml"
    monkeypatch.setattr(shipped, "_FOLDERS", (elsewhere, package))
    assert find_profile(ShippedProfile("cpu-4")) == installed / "cpu-4.toml"
    monkeypatch.setattr(shipped, "_FOLDERS", (elsewhere,))
    with pytest.raises(FileNotFoundError, match="reinstall tf-placement-harness"):
        shipped_folder("devices")


def test_an_unknown_shipped_profile_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(InvalidSpec, match=r"'@cpu-3': no such profile; accepted: @cpu-2, @cpu-4"):
        resolve("@cpu-3")


def test_every_key_of_a_profile_is_read(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        schema_version = 1
        description = "all keys"
        spec = "gpu:2"
        determinism = true
        tf32 = false
        soft_placement = true
        [memory]
        limit_mib = 4096
        [threads]
        intra_op = 2
        inter_op = 0
        """,
    )
    profile = load_profile(path)
    assert (profile.name, profile.path, profile.description) == ("mine", path, "all keys")
    assert profile.spec == GpuSpec(2)
    assert profile.options == Options(None, 4096, 2, 0, True, False, True)
    request = resolve(str(path))
    assert (request.spec, request.options) == (profile.spec, profile.options)
    assert str(request) == f"{path} (gpu:2)"


def test_a_profile_that_says_little_leaves_the_rest_to_tensorflow(tmp_path: Path) -> None:
    profile = load_profile(_write(tmp_path, 'schema_version = 1\nspec = "auto"\n'))
    assert profile.spec == AutoSpec()
    assert profile.options == Options()


@pytest.mark.parametrize(
    ("text", "key", "found", "accepted"),
    [
        ("schema_version = ", "", "TOML syntax: Invalid value (at end of document)", "a TOML document"),
        ('spec = "gpu"', "schema_version", None, "1"),
        ('schema_version = 2\nspec = "gpu"', "schema_version", 2, "1"),
        ('schema_version = true\nspec = "gpu"', "schema_version", True, "1"),
        ("schema_version = 1", "spec", None, "cpu:N"),
        ("schema_version = 1\nspec = 4", "spec", 4, "cpu:N"),
        ('schema_version = 1\nspec = "cpu:0"', "spec", "cpu:0", "at least 1 device is needed"),
        ('schema_version = 1\nspec = "@cpu-4"', "spec", "@cpu-4", "cannot name another"),
        ('schema_version = 1\nspec = "other.toml"', "spec", "other.toml", "cannot name another"),
        (f"{_HEAD}tf23 = true", "tf23", True, "did you mean 'tf32'?"),
        (f"{_HEAD}colour = 1", "colour", 1, "schema_version, description, spec, memory, threads, determinism"),
        ('schema_version = 1\nspeck = "gpu"', "speck", "gpu", "did you mean 'spec'?"),
        (f'{_HEAD}tf32 = "off"', "tf32", "off", "true or false"),
        (f"{_HEAD}soft_placement = 0", "soft_placement", 0, "true or false"),
        (f"{_HEAD}determinism = 1", "determinism", 1, "true or false"),
        (f"{_HEAD}memory = 3", "memory", 3, "a table"),
        (f"{_HEAD}[memory]\ngroth = true", "memory.groth", True, "growth, limit_mib (did you mean 'growth'?)"),
        (f"{_HEAD}[memory]\nlimit_mib = 0", "memory.limit_mib", 0, "1 or more, in MiB"),
        (f"{_HEAD}[memory]\nlimit_mib = 1.5", "memory.limit_mib", 1.5, "1 or more, in MiB"),
        (f'{_HEAD}[memory]\nlimit_mib = "1"', "memory.limit_mib", "1", "1 or more, in MiB"),
        (f"{_HEAD}[memory]\ngrowth = true\nlimit_mib = 9", "memory.limit_mib", 9, "not both"),
        (f"{_HEAD}[threads]\nintra_op = -1", "threads.intra_op", -1, "from 0 to 65,536; with 0, TensorFlow chooses"),
        (f"{_HEAD}[threads]\ninter_op = 3000000000", "threads.inter_op", 3_000_000_000, "an integer from 0 to 65,536"),
        (f"{_HEAD}[threads]\ninter = 1", "threads.inter", 1, "intra_op, inter_op"),
        ('schema_version = 1\nspec = "cpu:2"\n[memory]\ngrowth = true', "memory.growth", True, "is for real GPUs only"),
        ('schema_version = 1\nspec = "auto"\n[memory]\nlimit_mib = 9', "memory.limit_mib", 9, "is for real GPUs only"),
        (
            'schema_version = 1\nspec = "gpu:2x9"\n[memory]\nlimit_mib = 9',
            "memory.limit_mib",
            9,
            "sets the limit itself",
        ),
    ],
)
def test_a_broken_profile_is_refused_with_file_key_value_and_what_is_accepted(
    tmp_path: Path, text: str, key: str, found: object, accepted: str
) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(InvalidProfile) as caught:
        load_profile(path)
    error = caught.value
    assert (error.path, error.key) == (str(path), key)
    assert error.found == found
    assert type(error.found) is type(found)
    assert accepted in error.accepted
    message = str(error)
    assert message.startswith(f"profile {path}: {key or found}")
    assert ("is missing" in message) == (error.found is None)
    assert "\n" not in message


def test_growth_off_may_stand_beside_a_limit(tmp_path: Path) -> None:
    profile = load_profile(_write(tmp_path, f"{_HEAD}[memory]\ngrowth = false\nlimit_mib = 9"))
    assert (profile.options.memory_growth, profile.options.memory_limit_mib) == (False, 9)


def test_the_mark_with_which_some_editors_begin_a_file_is_no_part_of_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('schema_version = 1\nspec = "cpu:2"\n', encoding="utf-8-sig")
    assert load_profile(path).spec == CpuSpec(2)


def test_a_profile_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="cannot be read \\(No such file or directory\\)"):
        resolve(tmp_path / "absent.toml")
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    with pytest.raises(InvalidSpec, match="cannot be read \\(Is a directory\\)"):
        resolve(folder)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec, match="not UTF-8"):
        resolve(binary)
