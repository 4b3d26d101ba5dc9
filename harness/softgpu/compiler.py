"""The machine's C++ compiler: finds it, identifies it, runs it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import SoftwareGpusUnavailable

#: Tried in this order where CXX is not set.
NAMES = ("g++", "c++", "clang++")
#: A compile takes 20 s of one core; on a busy machine, several times that.
LIMIT_S = 600.0
_INSTALL = "install a C++ compiler, such as Debian's package g++, or name one with the environment variable CXX"


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler. ``command`` may have options of the user's; ``version`` is its first line of ``--version``."""

    command: tuple[str, ...]
    version: str

    def compile(self, arguments: Sequence[str], log: Path) -> None:
        """Run the compiler. What it prints is in ``log`` afterwards.

        Raises:
            SoftwareGpusUnavailable: it fails, or takes longer than ``LIMIT_S``.
        """
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    [*self.command, *arguments], stdout=output, stderr=output, timeout=LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                why = f"{self.command[0]} did not finish within {LIMIT_S:g} s"
                raise SoftwareGpusUnavailable(why, "run this command again when the machine is less busy") from None
            except OSError as error:
                raise SoftwareGpusUnavailable(f"{self.command[0]} does not run: {error}", _INSTALL) from error
        if done.returncode != 0:
            why = f"{self.command[0]} failed: {_first_error(log)}"
            raise SoftwareGpusUnavailable(why, f"see {log}, or name another compiler with the environment variable CXX")


def find_compiler(environment: Mapping[str, str] = os.environ) -> Compiler:
    """The compiler that ``CXX`` names, or else the first of ``NAMES`` on the path.

    Raises:
        SoftwareGpusUnavailable: there is none, or it does not run.
    """
    if named := environment.get("CXX", "").strip():
        try:
            command = tuple(shlex.split(named))
        except ValueError as error:
            raise SoftwareGpusUnavailable(f"CXX is {named!r}, which is not a command ({error})", _INSTALL) from error
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise SoftwareGpusUnavailable(f"CXX names {named!r}, which cannot be found", _INSTALL)
        return Compiler(command, _version(command))
    for name in NAMES:
        found = shutil.which(name, path=environment.get("PATH"))
        if found is not None:
            return Compiler((found,), _version((found,)))
    raise SoftwareGpusUnavailable(f"no C++ compiler was found (tried CXX, {', '.join(NAMES)})", _INSTALL)


def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SoftwareGpusUnavailable(f"the C++ compiler {command[0]!r} does not run: {error}", _INSTALL) from error
    if done.returncode != 0 or not done.stdout:
        raise SoftwareGpusUnavailable(
            f"{command[0]!r} is not a C++ compiler: --version failed or printed nothing", _INSTALL
        )
    return done.stdout.splitlines()[0]


def _first_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        if "error:" in line or "No space left" in line:
            return line.strip()
    return lines[-1].strip() if lines else "it printed nothing"
