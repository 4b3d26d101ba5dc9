"""The part of the pytest plug-in that measures: the fixture ``speedup``, its options, and the table of its results.

The figures of the benchmark in pytest-benchmark are those of the parallel side, one round a call, and its
``extra_info["harness"]`` is the whole record. This module is a plug-in only where pytest-benchmark is one.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.devices.device import Device, Devices
    from harness.speed.record import SpeedupRecord, Work

    SecondLook = Callable[[str, SpeedupRecord], bool]
    Speedup = Callable[..., SpeedupRecord]

OPTION_BUDGET = "--harness-speedup-budget"
OPTION_PRECISION = "--harness-speedup-precision"
OPTION_TWICE = "--harness-speedup-twice"
#: Seconds that the pairs of one benchmark may take, and the half-width of the interval at which they end.
DEFAULT_BUDGET_S = 10.0
DEFAULT_PRECISION = 0.01
#: Whoever wants to look at a benchmark twice puts a function into ``config.stash`` under this key. It is called with
#: the benchmark's full name (``fullname`` in pytest-benchmark's JSON) and its record right after the first
#: measurement; where it returns True, the benchmark is measured once more with the same budget.
SECOND_LOOK = pytest.StashKey["SecondLook"]()
#: The name under which pytest-benchmark registers its session.
BENCHMARK_SESSION = "pytest-benchmark"
#: The names under which pytest-benchmark comes in: as its entry point, and with ``-p``.
_BENCHMARK_PLUGINS = ("benchmark", "pytest_benchmark.plugin")
#: The attribute of a test report that carries its records as plain dicts, from xdist's workers too.
REPORT = "harness_speedup"
_NOTHING_MEASURED = (
    "nothing was measured: pytest-benchmark is disabled (--benchmark-disable, or xdist's -n); both sides ran once and "
    "returned the same values"
)


@dataclass
class _Limits:
    budget_s: float
    precision: float


class ReplayTimer:
    """A timer for pytest-benchmark that replays earlier times.

    pytest-benchmark reads its timer before and after each round. Where times are loaded, the two readings are 0 and
    the next of them; otherwise it is the usual timer, for a test that uses ``benchmark`` itself.
    """

    #: What pytest-benchmark calls the timer in its files.
    __name__ = "harness"

    def __init__(self) -> None:
        self._readings: list[float] = []

    def load(self, times_ns: Sequence[int]) -> None:
        """Replay these times next."""
        self._readings = [reading for time_ns in reversed(times_ns) for reading in (time_ns * 1e-9, 0.0)]

    def __call__(self) -> float:
        """The reading, in seconds."""
        return self._readings.pop() if self._readings else time.perf_counter()


@dataclass
class _Measured:
    timer: ReplayTimer
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


_LIMITS = pytest.StashKey[_Limits]()
_MEASURED = pytest.StashKey[_Measured]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options. They are there also without pytest-benchmark, so that an ini file can name them."""
    group.addoption(
        OPTION_BUDGET,
        metavar="SECONDS",
        help=f"how long to measure each speedup (default: {DEFAULT_BUDGET_S:g} s)",
    )
    group.addoption(
        OPTION_PRECISION,
        metavar="SHARE",
        help="measure until the confidence interval of a speedup has this relative half-width, such as 0.5%% or "
        "0.005 (default: 1%%)",
    )
    group.addoption(
        OPTION_TWICE,
        action="store_true",
        help="measure each speedup twice, so that `harness compare` can confirm a loss from the saved files",
    )


def register(config: pytest.Config) -> None:
    """Come in where pytest-benchmark has come in; elsewhere the fixture says what is missing."""
    config.stash[_LIMITS] = _Limits(
        _option(config, OPTION_BUDGET, DEFAULT_BUDGET_S, "parse_budget_s"),
        _option(config, OPTION_PRECISION, DEFAULT_PRECISION, "parse_share"),
    )
    there = any(config.pluginmanager.hasplugin(name) for name in _BENCHMARK_PLUGINS)
    config.pluginmanager.register(sys.modules[__name__] if there else _WithoutBenchmark(), "harness-speedup")


def _option(config: pytest.Config, option: str, default: float, parser: str) -> float:
    """The value of an option; nothing is loaded for one that is not given."""
    given = config.getoption(option)
    if given is None:
        return default
    from harness.errors import UsageError
    from harness.speed import options

    try:
        return float(getattr(options, parser)(given))
    except UsageError as error:
        raise pytest.UsageError(f"{option}: {error}") from error


def is_measurement(config: pytest.Config, needing: Sequence[pytest.Item]) -> bool:
    """Whether these tests, all that need devices in this session, are there to measure speedups.

    With ``--benchmark-only`` pytest-benchmark skips the others, so that one that measures is enough.
    """
    session = config.pluginmanager.get_plugin(BENCHMARK_SESSION)
    if session is None or session.disabled or session.skip:
        return False
    measuring = ["speedup" in getattr(item, "fixturenames", ()) for item in needing]
    return any(measuring) if session.only else bool(measuring) and all(measuring)


class _WithoutBenchmark:
    @pytest.fixture
    def speedup(self) -> None:
        pytest.fail(
            "the fixture `speedup` needs pytest-benchmark: remove -p no:benchmark, load it with "
            "-p pytest_benchmark.plugin, or run: python -m pip install 'tf-placement-harness[speed]'",
            pytrace=False,
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give pytest-benchmark the timer that can tell of our times, by the marker that it reads when it starts."""
    if "speedup" not in getattr(item, "fixturenames", ()):
        return
    marker = item.get_closest_marker("benchmark")
    item.stash[_MEASURED] = _Measured(timer := ReplayTimer())
    item.add_marker(pytest.mark.benchmark(**{**(marker.kwargs if marker else {}), "timer": timer}), append=False)


@pytest.fixture
def speedup(benchmark: Any, request: pytest.FixtureRequest, _harness_devices: Devices) -> Speedup:
    """``speedup(single, parallel, *, devices=None, work=None)``: a :class:`harness.SpeedupRecord`.

    ``devices`` are those that ``parallel`` uses, by default the devices of the session. Both sides are callables
    without arguments that return the same tensors. Where pytest-benchmark is disabled, both run once and are compared;
    the record has no times then, its speedup is NaN, and a warning says so.
    """
    config = request.config
    limits, here = config.stash[_LIMITS], request.node.stash[_MEASURED]

    def measure(
        single: Callable[[], Any],
        parallel: Callable[[], Any],
        *,
        devices: Sequence[Device] = _harness_devices,
        work: Work | None = None,
        tolerance: float | None = None,
    ) -> SpeedupRecord:
        from harness.errors import UsageError
        from harness.speed.measure import compare_once, measure_pairs, measure_speedup

        if here.records:
            raise UsageError("speedup() was already called in this test; accepted: once per test")
        if benchmark.disabled:
            record = compare_once(
                single,
                parallel,
                devices=devices,
                half_width=limits.precision,
                budget_s=limits.budget_s,
                tolerance=tolerance,
                why=_NOTHING_MEASURED,
            )
            benchmark.pedantic(lambda: None)
        else:
            record = measure_speedup(
                single,
                parallel,
                devices=devices,
                work=work,
                budget_s=limits.budget_s,
                half_width=limits.precision,
                tolerance=tolerance,
            )
            look = config.stash.get(SECOND_LOOK, None)
            if config.getoption(OPTION_TWICE) or (look is not None and look(benchmark.fullname, record)):
                again = measure_pairs(
                    single,
                    parallel,
                    devices=tuple(devices),
                    budget_s=limits.budget_s,
                    half_width=limits.precision,
                    seed=1,
                    tolerance=tolerance,
                    compared=True,
                ).samples
                record = replace(record, second_single_ns=again.single_ns, second_parallel_ns=again.parallel_ns)
            _hand_over(benchmark, here.timer, record, parallel)
        here.records.append((benchmark.fullname, asdict(record)))
        return record

    return measure


def _hand_over(benchmark: Any, timer: ReplayTimer, record: SpeedupRecord, parallel: Callable[[], Any]) -> None:
    """Let pytest-benchmark have the times of the parallel side as if it had measured them."""
    from harness.errors import HarnessError
    from harness.speed.record import EXTRA_INFO_KEY

    rounds = len(record.parallel_ns)
    timer.load(record.parallel_ns)
    # With --benchmark-cprofile it is the program that has to be profiled, so that it has to be what runs.
    benchmark.pedantic(parallel if benchmark.cprofile else lambda: None, rounds=rounds, iterations=1)
    found = benchmark.stats.stats.rounds
    slowest_s = max(record.parallel_ns) * 1e-9
    if found != rounds or not math.isclose(benchmark.stats.stats.max, slowest_s, rel_tol=1e-9):
        raise HarnessError(
            f"pytest-benchmark recorded {found} rounds of at most {benchmark.stats.stats.max} s instead of "
            f"{rounds} of at "
            f"most {slowest_s} s: it does not read its timer as expected; use pytest-benchmark 5.0 to 5.3"
        )
    benchmark.extra_info[EXTRA_INFO_KEY] = asdict(record)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach what was measured to the report of the call, in plain values, so that xdist can carry it."""
    report = yield
    here = item.stash.get(_MEASURED, None)
    if here is not None and here.records and call.when == "call":
        setattr(report, REPORT, here.records)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of the speedups."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    measured = [(name, record) for report in reports for name, record in getattr(report, REPORT, [])]
    if not measured:
        return
    from harness.report.speedups import speedup_lines

    terminalreporter.section("speedups", sep="=")
    for line in speedup_lines(measured):
        terminalreporter.line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Add the fingerprint to pytest-benchmark's file, where TensorFlow was used: it is never loaded for this."""
    if "tensorflow" not in sys.modules:
        return
    from harness.devices.fingerprint import fingerprint
    from harness.speed.record import EXTRA_INFO_KEY

    machine_info[EXTRA_INFO_KEY] = asdict(fingerprint())


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_compare_machine_info(machine_info: dict[str, Any], compared_benchmark: dict[str, Any]) -> None:
    """Leave the fingerprint out of pytest-benchmark's own comparison of machines.

    It compares before the first test, when TensorFlow has not been loaded and there is no fingerprint yet, and would
    warn of a different machine each time.
    """
    from harness.speed.record import EXTRA_INFO_KEY

    machine_info.pop(EXTRA_INFO_KEY, None)
    saved = compared_benchmark["machine_info"].get(EXTRA_INFO_KEY)
    if saved is not None:
        machine_info[EXTRA_INFO_KEY] = saved
