"""Programs in processes of their own (``harness run``): each sees one device, and a failure stays with its program."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from harness.checking.check import Check, CheckContext, Level, skipped
from harness.checking.tally import Tally
from harness.devices.device import Devices
from harness.devices.nvidia import memory_by_process
from harness.hardware.finding import only_one_process
from harness.parallel.task_processes import TaskResult, Tasks
from harness.parallel.tasks import Script, slots
from harness.plural import plural
from harness.records import CheckResult, Exercised
from harness.runner.limits import STARTUP_LIMIT_S

#: Time limit of one program, in seconds. Each loads TensorFlow. As in ``cluster_hosts``, the check's own comes first.
LIMIT_S = STARTUP_LIMIT_S
#: Each program multiplies two matrices of ones of this size, and adds up the product.
SIZE = 64

_COMPUTES = f"""
import json, os
import tensorflow as tf
value = float(tf.reduce_sum(tf.matmul(tf.ones(({SIZE}, {SIZE})), tf.ones(({SIZE}, {SIZE})))))
gpus = len(tf.config.list_physical_devices("GPU"))
print("seen", json.dumps({{"cpus": sorted(os.sched_getaffinity(0)), "gpus": gpus, "value": value}}))
"""
#: The programs by the names of their files.
PROGRAMS = {
    "first.py": _COMPUTES,
    "second.py": _COMPUTES,
    "fails.py": "import sys; sys.exit(7)",
    "crashes.py": "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
}
_FAILURES = {"fails.py": "exit code 7", "crashes.py": "killed by SIGABRT"}


def run(context: CheckContext) -> CheckResult:
    """Run two programs that compute, one that fails and one that crashes, on two devices."""
    if exclusive := [card.label for card in getattr(context.machine, "cards", ()) if card.exclusive]:
        return skipped(*only_one_process(exclusive))
    spec = _spec(context.devices)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="harness-tasks-") as name:
        folder = Path(name)
        for script, text in PROGRAMS.items():
            (folder / script).write_text(text, encoding="utf-8")
        own = slots(spec)
        memory = memory_by_process if any(slot.uuid for slot in own) else None
        scripts = [Script(folder / script) for script in PROGRAMS]
        tasks = Tasks(scripts, own, folder / "logs", limit_s=LIMIT_S, gpu_memory=memory)
        for _ in tasks.run():
            pass
        for result in sorted(tasks.results, key=lambda each: each.number):
            _judge(result, spec, tally)
    return tally.result(
        f"two programs at once on {spec}, each on its own device with the right result; a program that failed and one "
        "that crashed did not affect them",
        "run the program in the finding by itself with `harness run`",
    )


def _spec(devices: Devices) -> str:
    return "gpu:2" if all(device.kind == "gpu" for device in devices) and len(devices) > 1 else "cpu:2"


def _judge(result: TaskResult, spec: str, tally: Tally) -> None:
    script, device = Path(result.command).name, result.device
    message = result.message or f"exit code {result.exit_code}"
    if script in _FAILURES:
        if not message.startswith(_FAILURES[script]):
            tally.fail("error", script, _FAILURES[script], message, device=device)
        return
    log = Path(result.log).read_text(encoding="utf-8", errors="replace")
    seen = [json.loads(line.removeprefix("seen ")) for line in log.splitlines() if line.startswith("seen ")]
    if result.message or len(seen) != 1:
        tally.fail("error", script, "exit code 0", result.message or "no result", device=device)
        return
    if seen[0]["value"] != float(SIZE) ** 3:
        tally.fail("error", script, f"the result {SIZE**3}", f"{seen[0]['value']:.9g}", device=device)
    gpus = 1 if spec.startswith("gpu") else 0
    if seen[0]["gpus"] != gpus or (not gpus and len(seen[0]["cpus"]) != 1):
        found = f"{plural(seen[0]['gpus'], 'GPU')} and CPUs {seen[0]['cpus']}"
        tally.fail("error", script, "1 GPU" if gpus else "no GPU and 1 CPU", found, device=device)
    tally.exercised += Exercised(programs=1, values=1, ops=2, devices=(device,))


CHECK = Check(
    id="tasks",
    title="programs in processes of their own",
    proves="`harness run` shows each program one device only, and a program that fails or crashes does not affect the "
    "others",
    minimum_devices=1,
    typical_s=12,
    run=run,
    level=Level.STANDARD,
)
