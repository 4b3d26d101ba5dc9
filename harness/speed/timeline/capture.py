"""Runs a program under TensorFlow's profiler, in this process and in the servers of its cluster."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness._tensorflow import cluster_addresses
from harness.errors import EvidenceError
from harness.lazy import tf
from harness.plural import plural
from harness.speed.memory.allocations import record_cpu_allocations
from harness.speed.synchronise import synchronise
from harness.speed.timeline.host import CALL_MARK
from harness.speed.timeline.xplane import Capture, read_xplane

#: The local process in device names.
LOCAL_TASK = "/job:localhost/replica:0/task:0"

#: Ops with their threads and functions; the next level adds nothing that is used here.
_HOST_LEVEL = 2
#: Seconds for servers to start recording, and to go on afterwards; and how much longer than the calls they record.
_SERVER_START_S, _SERVER_REST_S = 1.0, 0.5
_SERVER_SLACK = 1.5
#: Seconds for threads to finish after the last output. An unfinished event is not in the profile, and the ops in it
#: would lose their device.
_LAST_EVENTS_S = 0.2
#: Attempts for a recording that did not cover the calls, as on a busy machine; all times are longer in each.
_ATTEMPTS = 4
_LONGER = 3


@dataclass(frozen=True, slots=True)
class Captured:
    """The profile of the local process, and those of the servers by task."""

    local: Capture
    servers: Mapping[str, Capture]

    @property
    def all(self) -> tuple[Capture, ...]:
        """The local one first."""
        return (self.local, *self.servers.values())


def capture_calls(program: Callable[[], Any], calls: int, folder: Path, tasks: Sequence[str] = ()) -> Captured:
    """Run a warm ``program`` under the profiler.

    Each call lasts until its outputs can be read. The profiler's files stay in ``folder``, for TensorBoard; earlier
    ones are removed. ``tasks`` are the servers of the cluster whose devices the program uses, such as
    ``/job:core/replica:0/task:1``.

    Raises:
        EvidenceError: the profiler recorded nothing, or the servers' recordings do not cover the calls.
        TensorFlowInterfaceChanged: the profiler's files are not as expected.
        Exception: what ``program`` raises, unchanged.
    """
    addresses = cluster_addresses()
    missing = [task for task in tasks if task not in addresses]
    if missing:
        raise EvidenceError(f"the address of {', '.join(missing)} is unknown; connect to the cluster before profiling")
    begin = time.perf_counter()
    if tasks:
        synchronise(program())
    taken_s = time.perf_counter() - begin
    for attempt in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if not tasks:
            return Captured(_record(program, calls, folder), {})
        longer = _LONGER**attempt
        start_s = _SERVER_START_S * longer
        record_s = start_s + (taken_s * calls * _SERVER_SLACK + _SERVER_REST_S) * longer
        captured = _record_all(program, calls, folder, {task: addresses[task] for task in tasks}, start_s, record_s)
        if captured is not None:
            return captured
    raise EvidenceError(
        f"the servers' recordings of {record_s:.0f} s did not cover {plural(calls, 'call')}; profile fewer calls "
        "with --calls"
    )


def _options() -> Any:
    return tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=_HOST_LEVEL, python_tracer_level=0, device_tracer_level=1
    )


def _record(program: Callable[[], Any], calls: int, folder: Path, servers: Collection[str] = ()) -> Capture:
    """Record this process. ``servers`` are the names of the files that servers write to the same folder."""
    record_cpu_allocations(on=True)
    try:
        tf.profiler.experimental.start(str(folder), options=_options())
        _run(program, calls)
    finally:
        record_cpu_allocations(on=False)
    made = [path for name, path in _files(folder) if name not in servers]
    if len(made) != 1:
        raise EvidenceError(
            f"TensorFlow's profiler wrote {plural(len(made), 'file')} for this process to {folder} instead of 1"
        )
    return read_xplane(made[0], LOCAL_TASK)


def _run(program: Callable[[], Any], calls: int) -> None:
    """Make the calls, and stop the profiler. What one call more has left in memory is then known to the others."""
    try:
        synchronise(program())
        for index in range(calls):
            with tf.profiler.experimental.Trace(CALL_MARK, step_num=index):
                synchronise(program())
        time.sleep(_LAST_EVENTS_S)
    finally:
        tf.profiler.experimental.stop()


def _record_all(
    program: Callable[[], Any],
    calls: int,
    folder: Path,
    addresses: Mapping[str, str],
    start_s: float,
    record_s: float,
) -> Captured | None:
    """Make one attempt, in which the servers have ``start_s`` seconds to start, and record for ``record_s`` in all.

    Return ``None`` if one started too late or ended too early.
    """
    names = {task: address.replace(":", "_") for task, address in addresses.items()}
    services = ",".join(f"grpc://{address}" for address in addresses.values())
    trace = tf.profiler.experimental.client.trace
    with ThreadPoolExecutor(1) as pool:
        recorded = pool.submit(trace, services, str(folder), int(record_s * 1000), options=_options())
        time.sleep(start_s)
        local = _record(program, calls, folder, names.values())
    try:
        recorded.result()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise EvidenceError(f"the servers could not be profiled: {error}") from error
    files = dict(_files(folder))
    servers = {}
    for task, name in names.items():
        if name not in files:
            raise EvidenceError(f"the server {task} at {addresses[task]} returned no profile")
        servers[task] = read_xplane(files[name], task)
    covered = all(each.begin_ns <= local.begin_ns and local.end_ns <= each.end_ns for each in servers.values())
    return Captured(local, servers) if covered else None


def _files(folder: Path) -> list[tuple[str, Path]]:
    """List the profiles by name: a server's is its address, that of this process is its host's."""
    return [(path.name.removesuffix(".xplane.pb"), path) for path in folder.rglob("*.xplane.pb")]
