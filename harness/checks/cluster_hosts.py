"""Devices of other hosts: three servers on loopback, which TensorFlow treats as three hosts, pass the core checks."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.checking.check import Check, CheckContext, Level
from harness.checking.run import Plan, run_checks
from harness.checking.suite import Suite
from harness.checking.tally import Tally
from harness.checks import gradient_colocation, model_parallel, vector_add
from harness.errors import RefusedByWorker
from harness.records import CheckResult, Verdict
from harness.runner.job import Job, WorkerFiles, typed_task
from harness.runner.limits import STARTUP_LIMIT_S
from harness.runner.messages import Answer, Finished
from harness.runner.process import TimeLimitReached, WorkerProcess
from harness.runner.worker import Send

HOSTS = 3
#: Checks that a single process passes too, and how processes find them.
SUITE = Suite((vector_add.CHECK, gradient_colocation.CHECK, model_parallel.CHECK))
REFERENCE = f"{__name__}:SUITE"
#: Time limits in seconds: for all hosts to start, and for each of the checks. What hangs is ended by the limit of this
#: check; on a busy machine, where a user gives it more time, these do not come before.
START_S = LIMIT_S = STARTUP_LIMIT_S


def run(context: CheckContext) -> CheckResult:  # noqa: ARG001 - it starts its own hosts
    """Start the hosts, run the checks on them, and take over their counts and findings."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="harness-cluster-") as name, _serving(HOSTS, Path(name)) as addresses:
        if len(addresses) < HOSTS:
            tally.fail("error", "the servers", f"{HOSTS} that listen within {START_S:g} s", f"{len(addresses)}")
            return tally.result("", "run `harness serve` by hand and read its output")
        spec = "cluster:" + ",".join(addresses)
        plan = Plan(spec, SUITE.ids, Path(name) / "checks", REFERENCE, timeout_s=LIMIT_S, startup_limit_s=LIMIT_S)
        try:
            results = [event.result for event in run_checks(plan) if isinstance(event, Finished)]
        except RefusedByWorker as error:
            tally.fail("error", "the checks", "results", str(error))
            results = []
        for result in results:
            tally.exercised += result.exercised
            tally.found(*result.findings)
            if result.verdict in (Verdict.UNKNOWN, Verdict.SKIP):
                tally.unproven(f"{result.check} on {HOSTS} hosts: {result.reason}")
    return tally.result(
        f"{', '.join(SUITE.ids)} passed on {HOSTS} hosts simulated on this machine, and each op is proven to have run "
        "on its host",
        "the finding names the host; docs/guides/other-hosts.md lists the usual causes",
    )


@typed_task
def serve(send: Send) -> None:
    """Be one host, as a worker process: answer with the address, and serve until the parent ends the process."""
    from harness.devices.host_server import start_server

    server = start_server()
    send(Answer({"address": server.address}))
    threading.Event().wait()


@contextmanager
def _serving(count: int, folder: Path) -> Iterator[list[str]]:
    """Yield the addresses of those of ``count`` hosts that start in time; end all hosts afterwards."""
    with ExitStack() as stack:
        hosts = [
            stack.enter_context(WorkerProcess(Job(f"{__name__}:serve"), WorkerFiles.create(folder, f"host-{number}")))
            for number in range(count)
        ]
        deadline = time.monotonic() + START_S
        yield [address for host in hosts if (address := _address(host, deadline))]


def _address(host: WorkerProcess, deadline: float) -> str:
    try:
        message = host.receive(deadline - time.monotonic())
    except TimeLimitReached:
        return ""
    return str(message.value["address"]) if isinstance(message, Answer) else ""


CHECK = Check(
    id="cluster",
    title="three hosts on loopback",
    proves="the data-parallel and pipeline checks also pass on devices of other hosts, and each op runs on its host",
    minimum_devices=1,
    typical_s=25,
    run=run,
    level=Level.STANDARD,
)
