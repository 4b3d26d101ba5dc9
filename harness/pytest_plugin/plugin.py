"""The pytest plug-in: options, fixtures, the ``devices`` marker, and a summary of what was exercised.

``docs/reference/plugin.md`` describes it. It loads nothing until it is used: starting pytest with it imports neither
TensorFlow nor NumPy. The devices are configured once per process, before the first test that could start TensorFlow, if
any selected test needs them. If all of those measure speedups, ``auto`` selects devices fit for measuring.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from harness import session as library_session
from harness.pytest_plugin import annotate, gate, memory, modes, page, saving, speed
from harness.pytest_plugin.early import AfterImport
from harness.pytest_plugin.requested import (
    DEFAULT_DEVICES,
    ENVIRONMENT_DEVICES,
    INI_DEVICES,
    OPTION_DEVICES,
    project_for,
    requested,
)
from harness.pytest_plugin.watch import Watch

if TYPE_CHECKING:
    from harness.devices.device import Devices
    from harness.report.session import SessionTotals

OPTION_REQUIRE = "--harness-require"
OPTION_SHRINK = "--harness-shrink"
MARKER = "devices"
_MARKER_HELP = (
    "devices(min=1, kind=None): the test needs at least `min` configured devices, and is skipped without them; `kind` "
    "limits them to one kind or a list of kinds: logical-cpu, logical-gpu, gpu (real or software), software-gpu, core "
    "or remote"
)
#: All our fixtures use this one, so it shows that a test uses one of ours, even if a project overrides ``devices``.
_FIXTURE = "_harness_devices"
#: The attribute of a test report that carries the test's use of devices, from xdist's workers too.
_REPORT = "harness"
#: Both names under which this module can come in: as the entry point, and with ``-p`` or ``pytest_plugins``.
_PLUGIN_NAMES = ("harness", "harness.pytest_plugin.plugin")


@dataclass
class _State:
    """The state of this process. In an xdist run, the controller knows only what is in the reports."""

    spec: str
    origin: str
    #: Whether any selected test needs devices.
    needed: bool = False
    #: Whether all that need them measure speedups, so that "auto" means devices that are fit to be measured.
    measuring: bool = False
    devices: Devices | None = None
    error: str | None = None
    #: What started TensorFlow before the devices were configured.
    started_by: str | None = None
    #: Why the running test was found to lack devices.
    lacking: str | None = None
    #: What configures the devices when TensorFlow is imported, where they were asked for by name.
    early: AfterImport | None = None
    #: What was verified and not yet reported.
    watch: Watch = field(default_factory=Watch)


_STATE = pytest.StashKey[_State]()


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    """Let this module come in under one of its names alone: a second one would be an error in pluggy."""
    if plugin is sys.modules[__name__]:
        for name in _PLUGIN_NAMES:
            if name != manager.get_name(plugin):
                manager.set_blocked(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini key."""
    group = parser.getgroup("harness", "device placement (harness)")
    group.addoption(
        OPTION_DEVICES,
        metavar="SPEC",
        help=f"devices for this session: a device spec such as cpu:4, gpu or auto (default: ${ENVIRONMENT_DEVICES}, "
        f"else the ini key {INI_DEVICES}, else devices in [tool.harness] of pyproject.toml, else {DEFAULT_DEVICES})",
    )
    group.addoption(
        OPTION_REQUIRE,
        action="store_true",
        help="fail tests that would be skipped because the configured devices do not satisfy the test's `devices` "
        "marker",
    )
    group.addoption(
        OPTION_SHRINK,
        action="store_true",
        help="when the fixture `verify` fails, look for the fewest rows, devices and outputs that still fail in the "
        "same way",
    )
    saving.add_option(group)
    annotate.add_options(group)
    page.add_options(group)
    speed.add_options(group)
    gate.add_options(group)
    modes.add_option(group)
    parser.addini(INI_DEVICES, f"devices for this session, as for {OPTION_DEVICES}", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse a spec or a profile that is not valid before anything runs."""
    for line in (_MARKER_HELP, *memory.MARKER_HELP):
        config.addinivalue_line("markers", line)
    modes.register(config)
    project = project_for(config)
    library_session.accept = project.accept if project is not None else ()
    spec, origin = requested(config, project)
    state = config.stash[_STATE] = _State(spec, origin)
    library_session.observers.append(state.watch.observe)
    library_session.devices = None if origin == "default" else spec
    library_session.root = config.rootpath
    config.pluginmanager.register(state.watch, "harness-watch")
    config.pluginmanager.register(_Summary(), "harness-summary")
    config.pluginmanager.register(memory.MemoryPlugin(lambda: _configured(state)), "harness-memory")
    speed.register(config)
    gate.register(config)
    annotate.register(config)
    state.watch.keeps = page.register(config)
    saving.register(config, project)
    if origin == "default":
        return
    from harness.devices.request import resolve
    from harness.errors import UsageError

    try:
        resolve(spec)
    except UsageError as error:
        raise pytest.UsageError(f"{error} (from {origin})") from error
    # So that a test file may build a model when it is imported. The controller of xdist imports none.
    is_controller = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if not (is_controller or config.option.collectonly):
        state.early = AfterImport("tensorflow", lambda: _configure(state))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Undo what :func:`pytest_configure` told the library."""
    state = config.stash.get(_STATE, None)
    if state is not None and state.early is not None:
        state.early.forget()
    if state is not None and state.watch.observe in library_session.observers:
        library_session.observers.remove(state.watch.observe)
        library_session.devices = library_session.root = None
        library_session.accept = ()
        saving.unregister()


def pytest_report_header(config: pytest.Config) -> str:
    """Report the requested devices and where the request comes from. The summary reports the configured ones."""
    state = config.stash[_STATE]
    return f"harness: devices {state.spec} ({state.origin})"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find out whether any selected test needs devices, and whether this session is a measurement."""
    needing = [item for item in session.items if _needs_devices(item)]
    state = session.config.stash[_STATE]
    state.needed = bool(needing)
    state.measuring = speed.is_measurement(session.config, needing)
    _note_start(
        state,
        "the import of a conftest.py or a test file; move the code that starts it into a fixture that uses the fixture "
        "`devices`",
    )


def _needs_devices(item: pytest.Item) -> bool:
    marked = item.get_closest_marker(MARKER) is not None or memory.is_marked(item)
    return marked or _FIXTURE in getattr(item, "fixturenames", ())


def _configure(state: _State) -> None:
    """Configure the devices once. Keep the error, for each test that needs them to report."""
    if state.devices is not None or state.error is not None:
        return
    if state.early is not None:
        state.early.forget()  # configuring imports TensorFlow
    from harness.devices.runtime import configure
    from harness.errors import HarnessError

    try:
        if state.measuring and state.spec == DEFAULT_DEVICES:
            from harness.devices.measuring import measuring_spec

            taken = measuring_spec()
            state.devices = configure(taken.spec)
            state.origin = f"{state.origin}; {taken.reason}"
        else:
            state.devices = configure(state.spec)
    except HarnessError as error:
        state.error = f"{type(error).__name__}: {error}"


def _note_start(state: _State, by: str) -> None:
    """Remember what started TensorFlow, if it has started and is not configured."""
    tensorflow = sys.modules.get("tensorflow")
    if not state.needed or state.devices is not None or state.started_by is not None or tensorflow is None:
        return
    from harness.devices.settings import runtime_started

    if runtime_started(tensorflow):
        state.started_by = by


def _configured(state: _State) -> Devices:
    _configure(state)
    if state.devices is None:
        started = f"\nTensorFlow was started by {state.started_by}" if state.started_by else ""
        pytest.fail(f"{state.error} (devices {state.spec}, {state.origin}){started}", pytrace=False)
    return state.devices


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Configure the devices in time, and hold the test's needs against them."""
    state = item.config.stash[_STATE]
    state.lacking = None
    if not state.needed:
        return
    if not _needs_devices(item):
        # Once TensorFlow is loaded, any test may start its runtime, and with it fix other devices than those asked
        # for. Before it is loaded, nothing is worth the seconds that loading it takes.
        if "tensorflow" in sys.modules:
            _configure(state)
        return
    from harness.devices.needs import describe, parse_needs
    from harness.errors import UsageError

    refused = None
    try:
        needs = [parse_needs(marker.args, marker.kwargs) for marker in item.iter_markers(MARKER)]
    except UsageError as error:
        refused = f"@pytest.mark.{error}"
    if refused is not None:
        # Outside of the handler: pytest would print the first exception too.
        pytest.fail(refused, pytrace=False)
    devices = _configured(state)
    for need in needs:
        if not need.met_by(devices):
            lacking = f"needs {need}; configured: {describe(devices)} ({state.origin})"
            if item.config.getoption(OPTION_REQUIRE):
                pytest.fail(f"{lacking}; {OPTION_REQUIRE} turns this skip into a failure", pytrace=False)
            state.lacking = lacking
            pytest.skip(lacking)


@pytest.fixture(scope="session")
def _harness_devices(pytestconfig: pytest.Config) -> Devices:
    return _configured(pytestconfig.stash[_STATE])


@pytest.fixture(scope="session")
def devices(_harness_devices: Devices) -> Devices:
    """The devices of this session, configured: a sequence of ``harness.Device``."""
    return _harness_devices


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Notice that a test has started TensorFlow."""
    result = yield
    _note_start(item.config.stash[_STATE], f"{item.nodeid}; let this test use the fixture `devices`")
    return result


@pytest.fixture(scope="session")
def verify(_harness_devices: Devices, _harness_mode: str | None, pytestconfig: pytest.Config) -> Callable[..., Any]:
    """Verify on the devices of this session, unless ``devices=`` is given; raise unless the verification passes.

    With ``check=False`` return the :class:`harness.Verification` whatever its verdict.
    """
    import harness

    library_verify: Callable[..., Any] = harness.verify
    library_assert: Callable[..., Any] = harness.assert_parallel

    @wraps(library_verify)
    def verify_here(*args: Any, devices: Devices = _harness_devices, check: bool = True, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if pytestconfig.getoption(OPTION_SHRINK):
            kwargs = {"shrink": True, **kwargs}
        if (mode := _harness_mode) is not None:
            if mode not in kwargs.get("modes", (mode,)):
                pytest.skip(f"this verification does not run in the mode {mode}")
            kwargs["modes"] = [mode]
        return (library_assert if check else library_verify)(*args, devices=devices, **kwargs)

    return verify_here


@pytest.fixture(scope="session")
def trace(_harness_devices: Devices) -> Callable[..., Any]:
    """``harness.trace``. The devices are configured first: tracing would start TensorFlow with its own defaults."""
    import harness

    library_trace: Callable[..., Any] = harness.trace
    return library_trace


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the use of devices to the test's report, in plain values, so that xdist can carry it."""
    report = yield
    state = item.config.stash[_STATE]
    watch = state.watch
    needs = state.needed and _needs_devices(item)
    if not needs and not watch.verifications:
        return report
    from harness.devices.needs import describe
    from harness.judgement.verification import Verification
    from harness.records import Exercised
    from harness.report.session import DeviceUse

    configured = None
    if state.devices is not None:
        configured = f"{describe(state.devices)} ({state.origin}): {state.devices.reason}"
    use = DeviceUse(
        needs,
        configured,
        watch.verifications,
        watch.exercised or Exercised(),
        watch.unpassed,
        tuple(watch.warned),
        tuple(watch.proved),
    )
    # What a test that passes finds wrong, it wants to find.
    annotate.attach(report, item, [*watch.warnings, *(watch.failures if report.failed else ())])
    page.attach(report, item, watch.made)
    watch.reset()
    setattr(report, _REPORT, asdict(use))
    found = getattr(call.excinfo.value if call.excinfo else None, "verification", None)
    if isinstance(found, Verification) and item.config.get_verbosity() > 0:
        report.sections.append(("Findings", "\n".join(found.lines(everything=True))))
    if state.lacking is not None and call.when == "setup" and report.skipped:
        # Point at the test, not at the line of this file that found its needs unmet.
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, f"Skipped: {state.lacking}")
    return report


class _Summary:
    """Adds up the reports where they all arrive: in this process, or in xdist's controller."""

    def __init__(self) -> None:
        self.totals: SessionTotals | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain = getattr(report, _REPORT, None)
        if plain is None:
            return
        from harness.report.session import DeviceUse, SessionTotals

        if self.totals is None:
            self.totals = SessionTotals()
        # An expected failure has run, unless it was not even set up.
        skipped = report.skipped and (report.when == "setup" or not hasattr(report, "wasxfail"))
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.totals.add(report.nodeid, DeviceUse.from_plain(plain), why if skipped else None)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        nothing = self.totals is not None and self.totals.nothing_exercised
        if nothing and exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [] if self.totals is None else self.totals.lines()
        if self.totals is None or not lines:
            return
        unknown = self.totals.nothing_exercised
        terminalreporter.section("harness", sep="=", **({"red": True, "bold": True} if unknown else {}))
        for line in lines:
            terminalreporter.line(line, red=unknown)
