"""The part of the pytest plug-in that gates: ``pytest --benchmark-compare[=N] --harness-speedup-fail=5%``.

The speedups of the session are judged against pytest-benchmark's baseline (:mod:`harness.speed.gate`), and one that
looks like a loss is measured a second time at once.

With ``--harness-speedup-by-machine`` the folder below ``--benchmark-storage`` is named by the fingerprint of hardware
and software, because two different machines can share pytest-benchmark's "Linux-CPython-3.12-64bit". The fingerprint is
known once the devices are configured. So the baseline is looked for at the first speedup that is measured, and
pytest-benchmark gets it then, through its own attributes and methods.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.pytest_plugin.speed import BENCHMARK_SESSION, REPORT, SECOND_LOOK

if TYPE_CHECKING:
    from harness.records import Fingerprint
    from harness.speed.baseline import SavedRun
    from harness.speed.calibration import Calibration
    from harness.speed.change import Rules
    from harness.speed.gate import Judgement
    from harness.speed.record import SpeedupRecord

OPTION_FAIL = "--harness-speedup-fail"
#: Verdicts that fail no session. WARN: the runs cannot tell whether a speedup was lost.
_GREEN = ("PASS", "WARN")
OPTION_BY_MACHINE = "--harness-speedup-by-machine"
#: What pytest-benchmark looks for where ``--benchmark-compare`` names nothing.
_ANY_SAVED = "[0-9][0-9][0-9][0-9]_"


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options."""
    group.addoption(
        OPTION_FAIL,
        metavar="SHARE",
        help="with --benchmark-compare: fail if a speedup dropped by more than this share, such as 5%%, or if nothing "
        "can be judged",
    )
    group.addoption(
        OPTION_BY_MACHINE,
        action="store_true",
        help="keep runs in a subfolder of --benchmark-storage that is named after the hardware and software of this "
        "machine",
    )


def register(config: pytest.Config) -> None:
    """Come in where a gate or a folder by machine is asked for. xdist's workers measure nothing: no gate is there."""
    text, by_machine = config.getoption(OPTION_FAIL), config.getoption(OPTION_BY_MACHINE)
    if hasattr(config, "workerinput") or (text is None and not by_machine):
        return
    # None: no pytest-benchmark. An empty list: nobody asks to compare. True: with the last saved run.
    compare = config.getoption("benchmark_compare", None)
    rules = None if text is None else _rules(text)
    if compare is None:
        option = OPTION_BY_MACHINE if rules is None else OPTION_FAIL
        raise pytest.UsageError(f"{option} needs pytest-benchmark: remove -p no:benchmark, or install pytest-benchmark")
    if rules is not None and not compare:
        raise pytest.UsageError(
            f"{OPTION_FAIL}={text} has no baseline to compare with; add --benchmark-compare or "
            "--benchmark-compare=NUMBER"
        )
    if isinstance(compare, str) and compare.endswith(".json") and not Path(compare).is_file():
        raise pytest.UsageError(
            f"--benchmark-compare={compare}: no such file; record it with --benchmark-json={compare}"
        )
    if by_machine:
        config.option.benchmark_compare = []  # it would look before the first test, when the machine is not known
    config.pluginmanager.register(_Gate(config, rules, compare, by_machine), "harness-gate")


def _rules(text: str) -> Rules:
    from harness.errors import UsageError
    from harness.extras import require
    from harness.speed.change import Rules
    from harness.speed.options import parse_share

    try:
        require("scipy")
        return Rules(parse_share(text))
    except UsageError as error:
        raise pytest.UsageError(f"{OPTION_FAIL}: {error}") from error


@dataclass(eq=False)
class _Gate:
    """One session: its baseline, its speedups, and what they come to."""

    config: pytest.Config
    rules: Rules | None
    compare: str | bool
    by_machine: bool
    baseline: SavedRun | None = None
    fingerprint: Fingerprint | None = None
    calibration: Calibration | None = None
    #: Why nothing can be judged.
    problem: str | None = None
    records: dict[str, SpeedupRecord] = field(default_factory=dict)
    judgement: Judgement | None = None
    _looked: bool = False

    @property
    def benchmarks(self) -> Any:
        return self.config.pluginmanager.get_plugin(BENCHMARK_SESSION)

    def pytest_sessionstart(self) -> None:
        """Refuse what can gate nothing before anything is measured."""
        if self.rules is None:
            return
        session = self.benchmarks
        if (off := self._switched_off()) is not None:
            why, remedy = off
            raise pytest.UsageError(f"{OPTION_FAIL}: {why}, so there is nothing to judge; {remedy}")
        if not hasattr(session.storage, "query"):
            raise pytest.UsageError(
                f"{OPTION_FAIL}: {session.storage} is not a folder; give one with --benchmark-storage"
            )
        if not self._saved("*/" if self.by_machine else ""):
            what = "no saved run" if self.compare is True else f"no saved run matches {self.compare!r}"
            raise pytest.UsageError(
                f"{OPTION_FAIL}: missing baseline: {what} in {session.storage}; record one with --benchmark-save=NAME"
            )
        if not self.by_machine:
            self._read(self._saved(""))
            if self.problem is not None:
                raise pytest.UsageError(f"{OPTION_FAIL}: {self.problem}")
        self.config.stash[SECOND_LOOK] = self._suspects

    def _switched_off(self) -> tuple[str, str] | None:
        """What keeps pytest-benchmark from measuring, and what to do."""
        session = self.benchmarks
        if session.skip:
            return "--benchmark-skip skips all benchmarks", "remove --benchmark-skip"
        if not session.disabled:
            return None
        if self.config.getoption("benchmark_disable") and not self.config.getoption("benchmark_enable"):
            remedy = "remove --benchmark-disable, or add --benchmark-enable"
            return "--benchmark-disable disables pytest-benchmark", remedy
        return "xdist disables pytest-benchmark", "run in one process, with -n 0, and not from a worker of xdist"

    def _saved(self, folder: str) -> list[Path]:
        """The files that ``--benchmark-compare`` stands for, as pytest-benchmark finds them."""
        pattern = _ANY_SAVED if self.compare is True else str(self.compare)
        if Path(pattern).is_file():
            return [Path(pattern)]
        found: list[Path] = self.benchmarks.storage.query(pattern if "/" in pattern else folder + pattern)
        return found[-1:] if self.compare is True else found

    def _read(self, files: list[Path]) -> None:
        from harness.errors import InvalidBaseline
        from harness.speed.baseline import read_run

        if len(files) > 1:
            names = ", ".join(str(file) for file in files)
            self.problem = f"--benchmark-compare={self.compare} matches {len(files)} baselines: {names}; name one"
            return
        try:
            self.baseline = read_run(files[0])
        except InvalidBaseline as error:
            self.problem = str(error)

    def _look(self) -> None:
        """Once the machine is known: its fingerprint, its calibration, and with folders by machine the baseline."""
        if self._looked:
            return
        self._looked = True
        from harness.devices.fingerprint import fingerprint
        from harness.devices.project import project_of
        from harness.errors import InvalidCalibration
        from harness.speed.calibration import DEFAULT_FOLDER, load_calibration
        from harness.speed.comparable import machine_key

        self.fingerprint = fingerprint()
        storage = self.benchmarks.storage
        if self.by_machine:
            storage.default_machine_id = self.benchmarks.machine_id = machine_key(self.fingerprint)
            if self.compare and (files := self._saved("")):
                self.benchmarks.compare = self.compare
                self.benchmarks.handle_loading()
            else:
                # Runs of other machines: that they are not comparable is what there is to say.
                files = self._saved("*/")[-1:]
            if self.rules is not None:
                self._read(files)
        project = project_of(self.config.rootpath)
        given = project.settings.get("baselines") if project is not None else None
        folder = storage.path if self.by_machine else Path(given or self.config.rootpath / DEFAULT_FOLDER)
        try:
            self.calibration = load_calibration(folder, self.fingerprint)
        except InvalidCalibration as error:
            self.problem = self.problem or str(error)

    def _suspects(self, name: str, record: SpeedupRecord) -> bool:
        """Whether this benchmark is to be measured a second time at once."""
        from harness.speed.calibration import variation_of
        from harness.speed.gate import suspects

        self._look()
        base = None if self.baseline is None else self.baseline.records.get(name)
        if base is None or self.rules is None or self.problem is not None:
            return False
        return suspects(name, base, record, variation_of(self.calibration), self.rules)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain = getattr(report, REPORT, ())
        if not plain:
            return
        from harness.speed.baseline import parse_record

        for name, record in plain:
            if record["stopped"] != "disabled":
                self.records[name] = parse_record(record, name)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """Tell pytest-benchmark where to save, and judge: before it saves, and before anything is printed."""
        if self.records:
            self._look()
        refused = exitstatus == pytest.ExitCode.USAGE_ERROR or session.config.option.collectonly
        if self.rules is not None and not refused:
            self.judgement = self._judge(self.rules)
            if self.judgement.verdict not in _GREEN and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def _judge(self, rules: Rules) -> Judgement:
        from harness.records import Verdict
        from harness.speed.calibration import variation_of
        from harness.speed.change import UNCALIBRATED
        from harness.speed.gate import Judgement, judge

        variation = UNCALIBRATED.line if self.calibration is None else self.calibration.line
        problem = self.problem
        if problem is None and not self.records:
            problem = "no speedup was measured in this session"
        if problem is not None or self.baseline is None:
            origin = "no baseline" if self.baseline is None else self.baseline.origin
            return Judgement(Verdict.UNKNOWN, problem or "no baseline was read", rules, origin, variation)
        return judge(
            self.baseline,
            self.records,
            self.fingerprint,
            rules,
            variation_of(self.calibration),
            variation=variation,
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.judgement is None:
            return
        from harness.report.gate import gate_lines

        bad = self.judgement.verdict not in _GREEN
        terminalreporter.section(
            "speedups against the baseline", sep="=", **({"red": True, "bold": True} if bad else {})
        )
        *lines, verdict = gate_lines(self.judgement)
        for line in lines:
            terminalreporter.line(line)
        terminalreporter.line(verdict, red=bad, green=not bad)
