"""Keeps the case of a test in which a verification fails, for ``harness replay``, until the test passes.

The cases are in ``.harness/failures`` in the root of the project, or where ``--harness-save`` says: one file for each
test. What would write too much there is not kept, and the oldest files make room for new ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import session as library_session
from harness.pytest_plugin.modes import OPTION_MODES
from harness.session import Cases

if TYPE_CHECKING:
    from harness.devices.project import Project
    from harness.judgement.saved_case import SavedCase

OPTION_SAVE = "--harness-save"
DEFAULT_FOLDER = ".harness/failures"
OFF = "off"
#: The largest case that is kept, and how much all may take, where no folder was asked for.
MOST_BYTES, MOST_BYTES_OF_ALL = 64 << 20, 256 << 20
#: So many commands are shown.
_MOST_SHOWN = 3
_ATTRIBUTE = "_harness_case"


def add_option(group: pytest.OptionGroup) -> None:
    """Add the option."""
    group.addoption(
        OPTION_SAVE,
        metavar="DIR",
        help="when a verification fails in a test, save the inputs, variables and seed in this folder, for "
        f"`harness replay`; {OFF}: nowhere (default: save_failures in [tool.harness] of pyproject.toml, else "
        f"{DEFAULT_FOLDER} in the root of the project, for cases of at most 64 MiB, but not where the environment "
        "variable CI is set)",
    )


def register(config: pytest.Config, project: Project | None) -> None:
    """Keep the cases of this session, unless that is switched off. Raise UsageError if the folder is a file."""
    given = config.getoption(OPTION_SAVE)
    setting = None if project is None else project.settings.get("save_failures")
    chosen = setting if given is None else given
    if chosen == OFF or (chosen is None and os.environ.get("CI")):
        return  # nobody replays what is in a folder of CI
    folder = config.rootpath / DEFAULT_FOLDER if chosen is None else Path(config.invocation_params.dir) / chosen
    if chosen is not None and (not chosen or (folder.exists() and not folder.is_dir())):
        name = "save_failures in [tool.harness] = " if given is None else f"{OPTION_SAVE}="
        raise pytest.UsageError(
            f"{name}{chosen} is {'a file' if chosen else 'empty'}; accepted: the path of a folder, or {OFF}"
        )
    # A replay keeps the case as it is.
    if not os.environ.get("HARNESS_REPLAY"):
        saving = Saving(config, folder, is_default=chosen is None)
        library_session.cases = Cases(saving.keep, saving.most_bytes)
        library_session.started_in = Path(config.invocation_params.dir)
        library_session.options = tuple(_options(config))
        config.pluginmanager.register(saving, "harness-saving")


def unregister() -> None:
    """Undo what :func:`register` told the library."""
    library_session.cases = library_session.started_in = None
    library_session.options = ()


def _options(config: pytest.Config) -> Generator[str]:
    """The options of this session without which a test is another one when it is started again."""
    if config.inipath is not None and config.option.inifilename:
        yield from ("-c", str(config.inipath))
    # Workers of xdist have no terminal, which is needed again.
    for plugin in config.option.plugins:
        yield from () if plugin == "no:terminal" else ("-p", plugin)
    for setting in config.option.override_ini or ():
        yield from ("-o", setting)
    if (modes := config.getoption(OPTION_MODES)) is not None:
        yield f"{OPTION_MODES}={modes}"


class Saving:
    """Keeps the last case of the running test, writes it if the test fails, and shows where all of them are."""

    def __init__(self, config: pytest.Config, folder: Path, *, is_default: bool) -> None:
        self.folder, self.is_default = folder, is_default
        self.most_bytes = MOST_BYTES if is_default else None
        self.started_in = Path(config.invocation_params.dir)
        self._case: SavedCase | None = None
        self._size = 0
        self._failed = self._ran = False
        self._there = folder.is_dir()
        #: What all processes saved, in the order of the reports, and why others could not.
        self.saved: list[str] = []
        self.problems: dict[str, None] = {}

    def keep(self, case: Any, size_bytes: int) -> None:
        """Keep a case until its test has ended."""
        self._case, self._size = case, size_bytes

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write the case of a test that has failed; remove that of one that has passed."""
        report = yield
        if report.when == "setup":
            self._failed = self._ran = False
        self._ran |= report.when == "call" and (not report.skipped or hasattr(report, "wasxfail"))
        if report.failed:
            self._failed = True
            # Hypothesis itself keeps the example that fails, and draws it again.
            of_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
            if (self._case is not None or self._size) and not (of_hypothesis and self.is_default):
                setattr(report, _ATTRIBUTE, self._written(item.nodeid))
                self._case, self._size = None, 0
        if report.when == "teardown":
            if self._ran and not self._failed and self._there:
                with contextlib.suppress(OSError):
                    self._file(item.nodeid).unlink(missing_ok=True)
            self._case, self._size = None, 0
        return report

    def _file(self, test: str) -> Path:
        name = re.sub(r"[^\w.]+", "-", test.rpartition("/")[2], flags=re.ASCII)[:80].strip("-")
        return self.folder / f"{name}-{sha256(test.encode()).hexdigest()[:8]}.npz"

    def _written(self, test: str) -> dict[str, str]:
        """Write the case, and return the file, or why there is none: plain values, which xdist carries."""
        path = self._file(test)
        if self._case is None:
            from harness.report.quantities import size

            path.unlink(missing_ok=True)  # it is another failure's
            what = f"the failing case of {test} is not saved: it has {size(self._size)}, more than {size(MOST_BYTES)}"
            return {"problem": f"{what}; {OPTION_SAVE}=DIR saves it"}
        try:
            self._case.save_as(path)
            if self.is_default:
                self._bound(path)
        except OSError as error:
            why = f"failing cases could not be saved in {self._shown(self.folder)}: {error.strerror or error}"
            return {"problem": f"{why}; {OPTION_SAVE}=DIR names another folder, {OPTION_SAVE}={OFF} saves none"}
        self._there = True
        return {"file": str(path)}

    def _bound(self, latest: Path) -> None:
        """Keep what is in the folder from version control, and remove the oldest cases if all take too much."""
        ignoring = self.folder.parent / ".gitignore"
        if not ignoring.exists():
            ignoring.write_text("# Written by the plug-in of tf-placement-harness for pytest.\n*\n", encoding="utf-8")
        room = MOST_BYTES_OF_ALL
        # Other workers write and remove files meanwhile.
        files = {}
        for path in self.folder.glob("*.npz"):
            with contextlib.suppress(FileNotFoundError):
                files[path] = path.stat()
        for path, status in sorted(files.items(), key=lambda each: (each[0] == latest, each[1].st_mtime), reverse=True):
            room -= status.st_size
            if room < 0 and path != latest:
                path.unlink(missing_ok=True)

    def _shown(self, path: Path) -> str:
        return os.path.relpath(path, self.started_in)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what was saved, where all reports arrive."""
        plain = getattr(report, _ATTRIBUTE, {})
        if "file" in plain:
            self.saved.append(plain["file"])
        if "problem" in plain:
            self.problems[plain["problem"]] = None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show how the failures are replayed."""
        for problem in self.problems:
            terminalreporter.line(f"harness: {problem}", yellow=True)
        files = [file for file in dict.fromkeys(self.saved) if Path(file).is_file()]
        for file in files[:_MOST_SHOWN]:
            terminalreporter.line(f"Replay: harness replay {shlex.quote(self._shown(Path(file)))}")
        if len(files) > _MOST_SHOWN:
            terminalreporter.line(f"and {len(files) - _MOST_SHOWN:,} more in {self._shown(self.folder)}")
