"""The plug-in's library: compiled once for each TensorFlow, compiler and source, then taken from the cache."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.atomic_file import write_atomically
from harness.errors import SoftwareGpusUnavailable
from harness.softgpu.compiler import Compiler, find_compiler
from harness.tensorflow_version import C_LIBRARY

_SOURCE = Path(__file__).with_name("source")
OPTIONS = ("-O2", "-w", "-fPIC", "-shared")


@dataclass(frozen=True, slots=True)
class Installation:
    """The installed TensorFlow, as a compiler needs it."""

    version: str
    folder: Path
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @classmethod
    def of(cls, tensorflow: Any) -> Installation:
        """Read it from the imported package."""
        config = tensorflow.sysconfig
        # Two builds of one version differ in their git version.
        version = f"{tensorflow.version.VERSION} {tensorflow.version.GIT_VERSION}"
        return cls(version, Path(config.get_lib()), tuple(config.get_compile_flags()), tuple(config.get_link_flags()))

    def arguments(self, source: Path, output: Path) -> list[str]:
        """The compiler's arguments."""
        links = [*self.link_flags, f"-L{self.folder}", f"-l:{C_LIBRARY}", f"-Wl,-rpath,{self.folder}"]
        return [*OPTIONS, *self.compile_flags, str(source), "-o", str(output), *links]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where libraries are kept: below ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    # A relative path is invalid by the XDG specification, and would depend on the working directory.
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    base = named if named.is_absolute() else Path(environment.get("HOME") or Path.home()) / ".cache"
    return base / "tf-placement-harness" / "softgpu"


def library_key(installation: Installation, compiler: Compiler, source: Path = _SOURCE) -> str:
    """What a library depends on, as a name: TensorFlow's version, and a hash of it, the compiler and the source."""
    digest = hashlib.sha256()
    parts = [installation.version, str(installation.folder), compiler.version, *compiler.command]
    parts += [*installation.compile_flags, *installation.link_flags, *OPTIONS]
    for file in sorted(source.iterdir()):
        parts += [file.name, file.read_text(encoding="utf-8")]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return f"{installation.version.split()[0]}-{digest.hexdigest()[:16]}"


def build_library(tensorflow: Any, environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the library, compiled where it is not in the cache. Two processes never compile the same one.

    Raises:
        SoftwareGpusUnavailable: there is no compiler, it fails, or the cache cannot be written.
    """
    compiler = find_compiler(environment)
    installation = Installation.of(tensorflow)
    library = cache_folder(environment) / f"{library_key(installation, compiler)}.so"
    compile_once(library, [library], partial(_compile, compiler, installation, library))
    return library


def compile_once(path: Path, libraries: Sequence[Path], compile_: Callable[[], None]) -> None:
    """Compile libraries that are not in the cache, at ``path`` or in that folder. They are sealed afterwards.

    Raises:
        SoftwareGpusUnavailable: the compiler fails, or the cache cannot be written.
    """
    with _cached(path.parent):
        if not _intact(libraries):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.with_suffix(".lock")):
                if not _intact(libraries):  # another process may have compiled them while this one waited
                    compile_()


def open_library(path: Path, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a compiled library into this process. Raise SoftwareGpusUnavailable where the system refuses it."""
    try:
        return ctypes.CDLL(str(path), mode=mode)
    except OSError as error:
        why = f"the compiled library cannot be loaded ({error})"
        remedy = "set XDG_CACHE_HOME to a folder whose file system is not mounted with noexec"
        raise SoftwareGpusUnavailable(why, remedy) from error


def _intact(libraries: Sequence[Path]) -> bool:
    """Whether libraries have the content that :func:`seal` noted. Loading a damaged one can end the process."""
    note = libraries[0].with_suffix(".sha256")
    return all(each.exists() for each in (note, *libraries)) and note.read_bytes() == _digest(libraries).encode()


def seal(libraries: Sequence[Path]) -> None:
    """Note the content of compiled libraries."""
    write_atomically(libraries[0].with_suffix(".sha256"), _digest(libraries))


def _digest(libraries: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(each.read_bytes() for each in libraries)).hexdigest()


def _compile(compiler: Compiler, installation: Installation, library: Path) -> None:
    # Where a test or a service captures stderr, this explains the wait.
    sys.stderr.write(
        f"harness: compiling software GPUs for TensorFlow {installation.version.split()[0]}, once; this takes a minute "
        "or less\n"
    )
    unfinished = library.with_suffix(".unfinished")
    try:
        compiler.compile(installation.arguments(_SOURCE / "plugin.cc", unfinished), library.with_suffix(".log"))
        unfinished.replace(library)
        seal([library])
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def _cached(folder: Path) -> Iterator[None]:
    """Say in one line what is wrong with the folder of a cache."""
    try:
        yield
    except OSError as error:
        why = f"the folder {folder} cannot be read or written ({error.strerror or error})"
        raise SoftwareGpusUnavailable(
            why, "make it writable, free space there, or set XDG_CACHE_HOME to another folder"
        ) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, also where it is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
