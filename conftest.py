"""What all tests share. The plug-in comes in by name, so that it is there whether the package is installed or not."""

from __future__ import annotations

import inspect
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType

import forks
import pytest
from hypothesis import HealthCheck, settings

import harness
from harness import session

pytest_plugins = ["pytester", "harness.pytest_plugin.plugin", "watchdog", "variants"]

# Where other work stops a test for a second, an example is not wrong: no test fails on a wall-clock time.
settings.register_profile("on-shared-cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("on-shared-cores")

#: Where the package under test is imported from, for processes that tests start.
_IMPORT_ROOT = Path(harness.__file__).resolve().parent.parent
_PYTHONPATH = os.environ.get("PYTHONPATH", "")
_CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
_FAKE_TENSORFLOW = Path(__file__).parent / "tests" / "devices" / "fake_tensorflow.py"
_RUN = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='fresh_process')[sys.argv[2]]()"


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Iterator[None]:
    """Let the workers of pytest-xdist be forks of one process: TensorFlow is imported once for them and their forks."""
    if hasattr(session.config, "workerinput"):
        forks.be_a_starter()
    with forks.forking() if session.config.pluginmanager.hasplugin("dsession") else nullcontext():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test the same weights in every run: Keras draws the seeds of its initializers from Python's numbers."""
    random.seed(0)


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_among_those_of_pytest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have what processes that tests kill leave behind removed along with pytest's older folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture
def fresh_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a function of a test file in a process of its own; keywords are environment variables.

    TensorFlow's devices are fixed once per process, so that what configures them runs in a fresh one. It is a fork of
    one that has imported TensorFlow; with ``new_python`` it is a Python that has imported nothing.
    """

    def run(
        function: Callable[[], None], timeout_s: float = 900, new_python: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        file = Path(inspect.getfile(function))
        paths = [str(_IMPORT_ROOT), _PYTHONPATH, str(file.parent), str(Path(forks.__file__).parent)]
        with nullcontext() if new_python else forks.forking():
            done = subprocess.run(
                [sys.executable, "-c", _RUN, str(file), function.__name__],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        assert done.returncode == 0, f"{function.__name__} failed in its process:\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def spec_of() -> Callable[[int], str]:
    """The spec of so many devices of the session's kind: software GPUs if it was given some, else logical CPUs."""
    kind = "softgpu" if (session.devices or "").startswith("softgpu:") else "cpu"
    return lambda count: f"{kind}:{count}"


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Lets every Python process that the tests of a file start, or the harness for them, be a fork."""
    with forks.forking():
        yield


@pytest.fixture
def inner_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Runs pytest with the plug-in on a machine with ``gpus`` GPUs of a fake TensorFlow, in this process.

    A process of its own, which is a fork, is for xdist (``-n``), the real TensorFlow (``real=True``), pytest-benchmark,
    which measures, and ``apart=True``. Of other plug-ins only xdist is loaded, and only for ``-n``: the rest would take
    a second each.
    """
    monkeypatch.delenv("HARNESS_DEVICES", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    # An inner session is no worker of the outer one's xdist, for which pytest-benchmark would take it.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # pytester moves the user's folder, in whose cache the compiled software GPUs are.
    monkeypatch.setenv("XDG_CACHE_HOME", _CACHE)
    fake = pytester.mkdir("fake")
    (fake / "tensorflow.py").write_bytes(_FAKE_TENSORFLOW.read_bytes())
    # The driver would report the GPUs that are really there.
    (fake / "pynvml.py").write_text("raise ImportError\n", encoding="utf-8")

    def run(*arguments: str, gpus: int = 0, real: bool = False, apart: bool = False) -> pytest.RunResult:
        paths = [str(_IMPORT_ROOT)] if real else [str(fake), str(_IMPORT_ROOT)]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*paths, *filter(None, [_PYTHONPATH])]))
        monkeypatch.setenv("FAKE_TENSORFLOW_GPUS", str(gpus))
        plugin: tuple[str, ...] = ("-p", "harness.pytest_plugin.plugin")
        if "-n" in arguments:
            plugin = (*plugin, "-p", "xdist.plugin")
        if "-n" in arguments or real or apart or "pytest_benchmark.plugin" in arguments:
            with forks.forking():
                return pytester.runpytest_subprocess(*plugin, *arguments)
        with _without_modules("harness", "tensorflow", "keras", "pynvml"), monkeypatch.context() as inner:
            inner.syspath_prepend(str(fake))
            return pytester.runpytest_inprocess(*plugin, *arguments)

    return run


@contextmanager
def _without_modules(*packages: str) -> Iterator[None]:
    """Within it these packages are as if never imported: the devices that this process has are kept out of sight."""

    def drop() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.partition(".")[0] in packages]
        return {name: sys.modules.pop(name) for name in names}

    kept = drop()
    try:
        yield
    finally:
        drop()
        sys.modules.update(kept)


@pytest.fixture
def no_machine_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the stand-ins for the driver know no card after a test, and hide none. Of the host, no container is seen."""
    from harness.devices import nvidia
    from harness.softgpu import described

    monkeypatch.setattr(nvidia, "in_container", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield
    if described._drivers is not None:
        described._drivers.write({})
