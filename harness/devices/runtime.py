"""Applies a device spec to TensorFlow, once per process.

TensorFlow fixes its devices and threads when its runtime starts. So everything is planned and compared first, then
set, started and checked. A request that cannot be met is refused before anything changes.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from harness.devices.connect import connect, connect_hosts, start_servers
from harness.devices.device import Device, Devices
from harness.devices.inventory import Inventory
from harness.devices.kinds.kind import Request
from harness.devices.name import DeviceName
from harness.devices.plan import Options, Plan
from harness.devices.request import resolve
from harness.devices.servers import CoreServer
from harness.devices.settings import apply_settings, irrevocable, read_settings, runtime_started
from harness.errors import DevicesAlreadyConfigured, DevicesUnavailable
from harness.lazy import tf
from harness.softgpu import load as load_software_gpus, prepare as prepare_software_gpus


@dataclass(frozen=True, slots=True)
class Configured:
    """What was configured in this process."""

    request: Request
    plan: Plan
    devices: Devices
    #: The servers of ``cores:N``, in the order of ``devices``.
    servers: tuple[CoreServer, ...] = ()

    def describe(self) -> str:
        """One line for messages."""
        return f"{self.request} [{self.plan.describe()}]"


# TensorFlow has one runtime per process, and so has this module. The plug-in configures it when TensorFlow is imported.
_lock = threading.RLock()
_configured: Configured | None = None


def configure(spec: str | os.PathLike[str]) -> Devices:
    """Configure TensorFlow's devices and start its runtime. A second call for the same gives the same devices.

    ``spec`` is a device spec, such as ``"cpu:4"``, ``"gpu"`` or ``"auto"``; ``harness.devices.spec.spec_forms()``
    lists all forms. Soft placement is off unless a profile switches it on: an op placed on an absent device fails.

    The result is exactly what was requested, never a smaller set. Its ``reason`` explains the choice.

    Examples:
        >>> devices = harness.configure("cpu:2")
        >>> [device.parsed.short for device in devices]
        ['CPU:0', 'CPU:1']

    Raises:
        InvalidSpec: the spec does not follow the grammar, or its profile does not exist.
        InvalidProfile: the profile is broken.
        DevicesUnavailable: fewer devices are available than requested. Nothing was set.
        DevicesAlreadyConfigured: TensorFlow has started with another configuration. Nothing was set.
        SoftwareGpusUnavailable: software GPUs cannot be compiled, or the machine has real ones. Nothing was set.
        CoreServerFailed: a server of ``cores:N`` did not start.
        HostUnreachable: no server answers on a host of a cluster.
    """
    global _configured
    request = resolve(spec)
    with _lock:
        if _configured is not None and _configured.request == request:
            _set_switches(tf, _configured.plan.options)
            return _configured.devices
        inventory = request.spec.inventory(tf)
        plan = request.plan(inventory)
        if _configured is None:
            plan, servers = _start(tf, request, plan, inventory)
            devices = Devices(plan.devices, spec=request.text, reason=plan.reason)
            _configured = Configured(request, plan, devices, servers)
        elif not plan.same_effect(_configured.plan):
            raise DevicesAlreadyConfigured(_configured.describe(), f"{request} [{plan.describe()}]")
        _set_switches(tf, plan.options)
        return _configured.devices


def current() -> Devices | None:
    """Give the devices that :func:`configure` has configured in this process, or ``None``."""
    return _configured.devices if _configured is not None else None


def configured() -> Configured | None:
    """Give the whole present configuration, or ``None``."""
    return _configured


def server_process(device: Device) -> int | None:
    """Give the process id of a device of ``cores:N``; ``None`` for any other device."""
    if _configured is None or not _configured.servers or device not in _configured.devices:
        return None
    return _configured.servers[_configured.devices.index(device)].pid


def _start(tensorflow: Any, request: Request, plan: Plan, inventory: Inventory) -> tuple[Plan, tuple[CoreServer, ...]]:
    """Apply the plan. Returns it with the devices of its hosts, and the servers of ``cores:N``."""
    requested = f"{request} [{plan.describe()}]"
    running: tuple[CoreServer, ...] = ()
    if plan.software_gpus is not None:
        prepare_software_gpus(plan.software_gpus)
    if runtime_started(tensorflow):
        found = read_settings(tensorflow)
        # A runtime that has started accepts no more servers.
        if plan.server_cpus or plan.hosts or not plan.runtime.met_by(found):
            raise DevicesAlreadyConfigured(f"[{found.describe()}] (not by the harness)", requested)
    else:
        if plan.software_gpus is not None:
            load_software_gpus(tensorflow, plan.software_gpus)
        if obstacle := irrevocable(tensorflow, plan.runtime):
            raise DevicesAlreadyConfigured(obstacle, requested)
        servers = start_servers(tensorflow, plan) if plan.server_cpus else None
        try:
            apply_settings(tensorflow, plan.runtime)
        except (RuntimeError, ValueError) as error:
            if servers is not None:
                servers.stop()
            raise DevicesAlreadyConfigured(
                f"devices that TensorFlow can no longer change ({error})", requested
            ) from error
        if servers is not None:
            running = connect(tensorflow, servers)
        if plan.hosts:
            connect_hosts(tensorflow, plan.hosts, request.text)
    try:
        available = _available_devices(tensorflow)
    except (RuntimeError, ValueError, tensorflow.errors.OpError) as error:
        needed = f"[{plan.describe()}], but TensorFlow did not start with these settings ({error})"
        raise DevicesUnavailable(str(request), needed, inventory.names) from error
    if plan.hosts:
        plan = plan.with_devices(available)
    expected = _expected(plan)
    if available != expected:
        needed = ", ".join(name.short for name in expected)
        raise DevicesUnavailable(str(request), needed, tuple(name.short for name in available))
    return plan, running


def _expected(plan: Plan) -> list[DeviceName]:
    """List all devices that must exist once the plan is applied: the CPUs of this process, then the others."""
    devices = [device.parsed for device in plan.devices]
    host = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(plan.runtime.logical_cpus)]
    return host if devices == host else host + devices


def _available_devices(tensorflow: Any) -> list[DeviceName]:
    """List the logical CPUs and GPUs of this process, then those of servers. This starts the runtime."""
    own, served = [], []
    for kind in ("CPU", "GPU"):
        for device in tensorflow.config.list_logical_devices(kind):
            name = DeviceName.parse(device.name)
            # TensorFlow leaves the host out of the names of local devices.
            if name.in_this_process:
                own.append(DeviceName("localhost", 0, 0, name.kind, name.index))
            else:
                served.append(name)
    # By host; the sort keeps CPUs before GPUs.
    return own + sorted(served, key=lambda name: (name.job or "", name.task or 0))


def _set_switches(tensorflow: Any, options: Options) -> None:
    """Set what TensorFlow lets be changed at any time: each request sets it again."""
    tensorflow.config.set_soft_device_placement(options.soft_placement)
    if options.tf32 is not None:
        tensorflow.config.experimental.enable_tensor_float_32_execution(options.tf32)
    if options.determinism:
        tensorflow.config.experimental.enable_op_determinism()
