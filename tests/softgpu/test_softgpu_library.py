"""The library of software GPUs is compiled once; what prevents that is one line. The compilers are scripts."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import SoftwareGpusUnavailable
from harness.softgpu.compiler import find_compiler
from harness.softgpu.drivers import build_drivers
from harness.softgpu.library import Installation, build_library, cache_folder, library_key, open_library

#: Writes its arguments and counts its runs beside itself; `{body}` is what it does as a compiler.
_SCRIPT = """#!/bin/sh
if [ "$1" = --version ]; then echo "{version}"; exit 0; fi
echo run >> "{folder}/runs"
while [ "$1" != -o ]; do shift; done
{body}
"""
_WORKS = 'sleep 0.3; echo library > "$2"'


def fake_tensorflow(version: str = "2.21.0", folder: str = "/tf") -> Any:
    sysconfig = SimpleNamespace(
        get_lib=lambda: folder, get_compile_flags=lambda: ["-I/tf/include"], get_link_flags=lambda: ["-L/tf"]
    )
    return SimpleNamespace(version=SimpleNamespace(VERSION=version, GIT_VERSION="v" + version), sysconfig=sysconfig)


def compiler(folder: Path, body: str = _WORKS, version: str = "fake++ 1") -> dict[str, str]:
    """The environment of a machine with this compiler and an empty cache."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "fake++"
    script.write_text(_SCRIPT.format(version=version, folder=folder, body=body), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return environment(folder)


def environment(folder: Path) -> dict[str, str]:
    """The environment of the machine of :func:`compiler`."""
    return {"CXX": str(folder / "fake++"), "PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(folder / "cache")}


def runs(folder: Path) -> int:
    file = folder / "runs"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def test_a_library_is_compiled_once_and_taken_from_the_cache_afterwards(tmp_path: Path) -> None:
    machine = compiler(tmp_path)
    first = build_library(fake_tensorflow(), machine)
    assert first.read_text(encoding="utf-8") == "library\n"
    assert build_library(fake_tensorflow(), machine) == first
    assert runs(tmp_path) == 1
    assert [path.suffix for path in first.parent.glob("*.unfinished")] == []


@pytest.mark.parametrize("size", [0, 3, None])
def test_a_damaged_library_is_compiled_again(tmp_path: Path, size: int | None) -> None:
    machine = compiler(tmp_path)
    library = build_library(fake_tensorflow(), machine)
    if size is None:
        library.write_text("another\n", encoding="utf-8")
    else:
        os.truncate(library, size)
    assert build_library(fake_tensorflow(), machine).read_text(encoding="utf-8") == "library\n"
    assert runs(tmp_path) == 2
    build_library(fake_tensorflow(), machine)
    assert runs(tmp_path) == 2


def test_the_stand_ins_for_the_driver_are_compiled_once_and_again_where_one_is_damaged(tmp_path: Path) -> None:
    machine = compiler(tmp_path)
    one, other = sorted(build_drivers(machine).glob("*.so.1"))
    build_drivers(machine)
    assert runs(tmp_path) == 2, "one run for each"
    for damaged in (one, other):
        os.truncate(damaged, 1)
        assert sorted(build_drivers(machine).glob("*.so.1")) == [one, other]
        assert damaged.read_text(encoding="utf-8") == "library\n"
    assert runs(tmp_path) == 6


def test_a_library_that_the_system_refuses_to_load_is_said_in_one_line(tmp_path: Path) -> None:
    # As on a file system that is mounted with noexec, the loader refuses what the compiler has written.
    library = build_library(fake_tensorflow(), compiler(tmp_path))
    with pytest.raises(
        SoftwareGpusUnavailable, match=r"cannot be loaded \(.*\); set XDG_CACHE_HOME .* noexec"
    ) as caught:
        open_library(library)
    assert "\n" not in str(caught.value)


def test_another_tensorflow_compiler_or_source_is_another_library(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "plugin.cc").write_text("one", encoding="utf-8")
    one = find_compiler(compiler(tmp_path / "one"))
    two = find_compiler(compiler(tmp_path / "one", version="fake++ 2"))
    installed = Installation.of(fake_tensorflow())
    keys = {
        library_key(installed, one, source),
        library_key(installed, two, source),
        library_key(Installation.of(fake_tensorflow("2.20.0")), one, source),
        library_key(Installation.of(fake_tensorflow(folder="/other")), one, source),
    }
    assert library_key(installed, one, source) in keys
    (source / "plugin.cc").write_text("two", encoding="utf-8")
    keys.add(library_key(installed, one, source))
    assert len(keys) == 5


def build_in(folder: str) -> None:
    build_library(fake_tensorflow(), environment(Path(folder)))


def test_processes_that_build_at_once_compile_once(tmp_path: Path) -> None:
    compiler(tmp_path)
    code = "import sys; sys.path[:0] = sys.argv[2:]; import test_softgpu_library as t; t.build_in(sys.argv[1])"
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), *paths]) for _ in range(3)]
    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert runs(tmp_path) == 1


def test_the_first_compiler_on_the_path_is_taken_where_none_is_named(tmp_path: Path) -> None:
    compiler(tmp_path)
    (tmp_path / "fake++").rename(tmp_path / "c++")
    found = find_compiler({"PATH": str(tmp_path)})
    assert found.command == (str(tmp_path / "c++"),)
    assert found.version == "fake++ 1"


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({"PATH": "/nowhere"}, "no C++ compiler was found (tried CXX, g++, c++, clang++)"),
        ({"PATH": "/nowhere", "CXX": "icc -O3"}, "CXX names 'icc -O3', which cannot be found"),
        (
            {"PATH": os.environ["PATH"], "CXX": 'g++ "'},
            "CXX is 'g++ \"', which is not a command (No closing quotation)",
        ),
        ({"PATH": os.environ["PATH"], "CXX": "false"}, "is not a C++ compiler: --version failed"),
    ],
)
def test_no_compiler_is_said_with_what_to_install(machine: dict[str, str], why: str) -> None:
    with pytest.raises(SoftwareGpusUnavailable) as caught:
        build_library(fake_tensorflow(), machine)
    assert why in caught.value.why
    assert "install a C++ compiler" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_compile_error_is_said_and_leaves_no_library(tmp_path: Path) -> None:
    machine = compiler(tmp_path, "echo 'plugin.cc:3: error: no such thing' >&2; echo half > \"$2\"; exit 1")
    with pytest.raises(
        SoftwareGpusUnavailable, match=r"failed: plugin.cc:3: error: no such thing; see .*\.log"
    ) as caught:
        build_library(fake_tensorflow(), machine)
    assert "\n" not in str(caught.value)
    assert not list(cache_folder(machine).glob("*.so"))
    assert not list(cache_folder(machine).glob("*.unfinished"))
    # The same machine with a compiler that works needs nothing cleared away.
    assert build_library(fake_tensorflow(), compiler(tmp_path)).exists()


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    machine = compiler(tmp_path, "echo 'fatal error: /x.o: No space left on device' >&2; exit 1")
    with pytest.raises(SoftwareGpusUnavailable, match="No space left on device"):
        build_library(fake_tensorflow(), machine)


def test_a_cache_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    machine = compiler(tmp_path)
    (tmp_path / "cache").write_text("a file in the place of the folder", encoding="utf-8")
    with pytest.raises(
        SoftwareGpusUnavailable, match=r"cannot be read or written .*set XDG_CACHE_HOME to another folder"
    ):
        build_library(fake_tensorflow(), machine)


def test_the_cache_is_where_the_xdg_specification_says(tmp_path: Path) -> None:
    below = Path("tf-placement-harness/softgpu")
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path), "HOME": "/home/user"}) == tmp_path / below
    assert cache_folder({"HOME": "/home/user"}) == Path("/home/user/.cache") / below
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/home/user"}) == Path("/home/user/.cache") / below
