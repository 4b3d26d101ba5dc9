"""``harness run``: programs in processes of their own see one device each, and one that fails fails alone."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.checking.check import Check, CheckContext, CheckOutcome, Level
from harness.checking.tally import Tally
from harness.records import Exercised, Finding
from harness.runner.own_command import command_line

if TYPE_CHECKING:
    from harness.devices.device import Devices

#: How long all of the programs may take, in seconds. Each loads TensorFlow.
LIMIT_S = 100.0
#: The number that each program computes, and from what.
SIZE = 64

_COMPUTES = f"""
import json, os
import tensorflow as tf
value = float(tf.reduce_sum(tf.matmul(tf.ones(({SIZE}, {SIZE})), tf.ones(({SIZE}, {SIZE})))))
gpus = len(tf.config.list_physical_devices("GPU"))
print("seen", json.dumps({{"cpus": sorted(os.sched_getaffinity(0)), "gpus": gpus, "value": value}}))
"""
#: The programs by the names of their files.
PROGRAMS = {"first.py": _COMPUTES, "second.py": _COMPUTES, "fails.py": "import sys; sys.exit(7)"}
PROGRAMS["crashes.py"] = "import os; os.abort()"


def run(context: CheckContext) -> CheckOutcome:
    """Run two programs that compute, one that fails and one that crashes, on two devices, as a user would."""
    spec = _spec(context.devices)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="harness-tasks-") as name:
        folder = Path(name)
        for script, text in PROGRAMS.items():
            (folder / script).write_text(text, encoding="utf-8")
        command = command_line("run", "--devices", spec, *PROGRAMS)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        try:
            results = json.loads((folder / "harness-report" / "tasks.json").read_text(encoding="utf-8"))["results"]
        except (OSError, ValueError):
            tally.found(_wrong("harness run", "a record of four tasks", done.stderr.strip() or "no record", None))
            return tally.outcome("", "run the command of the finding by hand")
        for result in sorted(results, key=lambda each: each["number"]):
            _judge(result, folder, spec, tally)
    return tally.outcome(
        f"two programs at once on {spec}, each on its own device with the right result; one that failed and one that "
        "crashed were reported alone",
        "run the programs by themselves with harness run; the finding says what each saw",
    )


def _spec(devices: Devices) -> str:
    return "gpu:2" if all(device.kind == "gpu" for device in devices) and len(devices) > 1 else "cpu:2"


def _judge(result: dict[str, Any], folder: Path, spec: str, tally: Tally) -> None:
    script, device = result["command"], result["device"]
    expected = {"fails.py": "exit code 7", "crashes.py": "killed by SIGABRT"}.get(script)
    if expected is not None:
        if not str(result["message"]).startswith(expected):
            tally.found(_wrong(script, expected, result["message"] or f"exit code {result['exit_code']}", device))
        return
    log = (folder / result["log"]).read_text(encoding="utf-8", errors="replace")
    seen = [json.loads(line.removeprefix("seen ")) for line in log.splitlines() if line.startswith("seen ")]
    if result["message"] or len(seen) != 1:
        tally.found(_wrong(script, "exit code 0", result["message"] or "no result", device))
        return
    if seen[0]["value"] != float(SIZE) ** 3:
        tally.found(_wrong(script, f"{float(SIZE) ** 3}", str(seen[0]["value"]), device))
    gpus = 1 if spec.startswith("gpu") else 0
    if seen[0]["gpus"] != gpus or (not gpus and len(seen[0]["cpus"]) != 1):
        what = f"{seen[0]['gpus']} GPU(s) and CPUs {seen[0]['cpus']}"
        tally.found(_wrong(script, "1 GPU" if gpus else "no GPU and 1 CPU", what, device))
    tally.count(Exercised(programs=1, values=1, ops=2, devices=(device,)))


def _wrong(where: str, expected: str, found: str, device: str | None) -> Finding:
    message = f"{where}: expected {expected}, found {found}"
    return Finding("error", where, device, expected, found, message)


CHECK = Check(
    id="tasks",
    title="programs in processes of their own",
    proves="harness run gives each program a device that it sees alone, and a program that fails or crashes is "
    "reported by itself while the others go on",
    minimum_devices=1,
    typical_s=12,
    run=run,
    level=Level.STANDARD,
)
