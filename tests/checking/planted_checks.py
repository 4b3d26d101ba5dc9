"""Checks with a known end, and a suite of them that needs no TensorFlow: what the runner's tests plant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.checking.check import Check, CheckContext
from harness.checking.suite import Suite
from harness.devices.device import Device, Devices
from harness.errors import DevicesUnavailable
from harness.records import CheckResult, Exercised, Finding, Fingerprint, Verdict


def _passes(context: CheckContext) -> CheckResult:
    return CheckResult(
        "",
        Verdict.PASS,
        "all is well",
        "",
        Exercised(values=3, ops=2, devices=context.devices.names),
        measured={"largest_error_ulp": 0.5},
    )


def _finds(context: CheckContext) -> CheckResult:
    device = context.devices.names[0]
    finding = Finding("value", "output [bold]y[/bold]", device, "1.0", "1.001", "off by [red]1e-3[/red]")
    return CheckResult("", Verdict.FAIL, "1 finding", "look at y", Exercised(values=1), (finding,))


def _raises(context: CheckContext) -> CheckResult:
    raise ValueError("planted failure\nwith a second line")


def _exits(context: CheckContext) -> CheckResult:
    sys.exit(0)


def _crashes(context: CheckContext) -> CheckResult:
    print("about to crash", flush=True)
    os.abort()


def _ends_at_once(context: CheckContext) -> CheckResult:
    os._exit(0)


def _begin_to_hang() -> None:
    if file := os.environ.get("PLANTED_BEGUN"):
        Path(file).write_text(str(os.getpid()))


def _hangs(context: CheckContext) -> CheckResult:
    _begin_to_hang()
    time.sleep(600)
    raise AssertionError("not reached")


def _hangs_with_child(context: CheckContext) -> CheckResult:
    """Starts a child that outlives it unless the whole process group is ended, and leaves its id in a file."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["PLANTED_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    _begin_to_hang()
    time.sleep(600)
    raise AssertionError("not reached")


def _crashes_with_forked_child(context: CheckContext) -> CheckResult:
    """Dies while a forked child holds the pipe to the parent open."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


def _prints(context: CheckContext) -> CheckResult:
    print('{"message": "Finished", "body": {}}')
    print("chatter on stderr", file=sys.stderr)
    os.write(1, b"chatter from below Python\n")
    return _passes(context)


def _says_pass_for_nothing(context: CheckContext) -> CheckResult:
    return CheckResult("", Verdict.PASS, "I am sure", "", Exercised())


def _warns(context: CheckContext) -> CheckResult:
    finding = Finding("op-placement", "Add", None, "CPU:1", "CPU:0", "ran elsewhere", Verdict.WARN)
    return CheckResult("", Verdict.PASS, "fine", "", Exercised(values=1), (finding,))


def _reads_stdin(context: CheckContext) -> CheckResult:
    assert sys.stdin.read() == ""
    return _passes(context)


def _check(check_id: str, run: Callable[[CheckContext], CheckResult], minimum_devices: int = 1) -> Check:
    return Check(check_id, f"planted: {check_id}", f"that {check_id} is dealt with", minimum_devices, 0.1, run)


def _devices(spec: str) -> Devices:
    if spec == "cpu:7":
        raise DevicesUnavailable(spec, "7 moons", ("CPU:0",))
    if spec == "cpu:8":
        os.abort()
    if spec == "cpu:9":
        _begin_to_hang()
        time.sleep(600)
    count = int(spec.removeprefix("cpu:")) if spec.startswith("cpu:") else 2
    names = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(count)]
    devices = [Device(name, "logical-cpu", "/physical_device:CPU:0") for name in names]
    return Devices(devices, spec=spec, reason="planted")


def _fingerprint(devices: Devices) -> Fingerprint:
    return Fingerprint("0", None, "0", "3", None, None, 1, None, None, "planted", spec=devices.spec)


SUITE = Suite(
    checks=(
        _check("passes", _passes),
        _check("finds", _finds),
        _check("raises", _raises),
        _check("exits", _exits),
        _check("crashes", _crashes),
        _check("ends-at-once", _ends_at_once),
        _check("hangs", _hangs),
        _check("hangs-with-child", _hangs_with_child),
        _check("crashes-with-forked-child", _crashes_with_forked_child),
        _check("prints", _prints),
        _check("vacuous", _says_pass_for_nothing),
        _check("warns", _warns),
        _check("reads-stdin", _reads_stdin),
        _check("needs-many", _passes, minimum_devices=64),
        _check("passes-too", _passes),
    ),
    configure=_devices,
    fingerprint=_fingerprint,
)
