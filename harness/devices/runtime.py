"""Applies a device spec to TensorFlow, once per process.

TensorFlow fixes its devices and threads when its runtime starts. So everything is decided and compared first, then
set, then started, then checked; what cannot be done is refused before anything is changed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from harness.devices.connect import connect, connect_hosts, start_servers
from harness.devices.device import Device, Devices
from harness.devices.inventory import Inventory, read_inventory
from harness.devices.name import DeviceName
from harness.devices.plan import Plan, plan_devices
from harness.devices.request import Request, resolve
from harness.devices.resolvers import find_hosts
from harness.devices.servers import CoreServer
from harness.devices.settings import apply_settings, irrevocable, read_settings, runtime_started
from harness.devices.spec import ClusterSpec
from harness.errors import DevicesAlreadyConfigured, DevicesUnavailable


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


# TensorFlow has one runtime per process, and so has this module.
_lock = threading.Lock()
_configured: Configured | None = None


def configure(spec: str | os.PathLike[str]) -> Devices:
    """Configure TensorFlow's devices and start its runtime. Asking again for the same gives the same devices.

    ``spec`` is ``"cpu:N"`` (N logical CPUs; GPUs are hidden, so that this process takes none of their memory; one
    thread in an op, N between ops), ``"gpu"`` (all real GPUs), ``"gpu:N"`` (the first N), ``"gpu:NxM"`` (N logical
    GPUs of M MiB each on the first card), ``"cores:N"`` (N TensorFlow servers on this machine, each with one thread on
    a CPU core of its own; they end with this process), ``"cluster:HOST:PORT,HOST:PORT"`` (all devices of the servers on
    these hosts, CPUs before GPUs; ``"cluster:tf_config"``, ``"cluster:slurm"`` and ``"cluster:kubernetes"`` find the
    hosts through TensorFlow's cluster resolvers), ``"auto"`` (two or more real GPUs, else two logical GPUs on the one
    card, else ``cpu:4``), ``"@NAME"`` (a shipped profile) or a path to a ``.toml`` profile. Soft placement is off
    unless the profile says otherwise: an op that asks for an absent device fails.

    The result is exactly what was asked for, never a smaller set. Its ``reason`` says what was taken and why.

    Raises:
        InvalidSpec: the spec does not follow the grammar, or its profile is not there.
        InvalidProfile: the profile is broken.
        DevicesUnavailable: fewer devices are there than asked for. Nothing was set.
        DevicesAlreadyConfigured: TensorFlow has started with anything else. Nothing was set.
        CoreServerFailed: a server of ``cores:N`` did not start.
        HostUnreachable: no server answers on a host of a cluster.
    """
    global _configured
    request = resolve(spec)
    with _lock:
        if _configured is not None and _configured.request == request:
            import tensorflow as tf

            _set_switches(tf, _configured.plan)
            return _configured.devices
        import tensorflow as tf

        inventory = read_inventory(tf)
        hosts = find_hosts(tf, request.spec) if isinstance(request.spec, ClusterSpec) else ()
        plan = plan_devices(request, inventory, hosts)
        if _configured is None:
            plan, servers = _start(tf, request, plan, inventory)
            devices = Devices(plan.devices, spec=request.text, reason=plan.reason)
            _configured = Configured(request, plan, devices, servers)
        elif not plan.same_effect(_configured.plan):
            raise DevicesAlreadyConfigured(_configured.describe(), f"{request} [{plan.describe()}]")
        _set_switches(tf, plan)
        return _configured.devices


def current() -> Devices | None:
    """The devices that :func:`configure` has configured in this process, or ``None``."""
    return _configured.devices if _configured is not None else None


def configured() -> Configured | None:
    """Everything about the present configuration, or ``None``."""
    return _configured


def server_process(device: Device) -> int | None:
    """The id of the process of a device of ``cores:N``; ``None`` for any other device."""
    if _configured is None or not _configured.servers or device not in _configured.devices:
        return None
    return _configured.servers[_configured.devices.index(device)].pid


def _start(tensorflow: Any, request: Request, plan: Plan, inventory: Inventory) -> tuple[Plan, tuple[CoreServer, ...]]:
    """Put the plan into effect; gives it back with the devices of its hosts, and the servers of ``cores:N``."""
    asked = f"{request} [{plan.describe()}]"
    running: tuple[CoreServer, ...] = ()
    if runtime_started(tensorflow):
        found = read_settings(tensorflow)
        # Servers cannot be taken up by a runtime that has started.
        if plan.server_cpus or plan.hosts or not plan.runtime.met_by(found):
            raise DevicesAlreadyConfigured(f"{found.describe()} (not by the harness)", asked)
    else:
        if obstacle := irrevocable(tensorflow, plan.runtime):
            raise DevicesAlreadyConfigured(f"{obstacle} (not by the harness)", asked)
        servers = start_servers(tensorflow, plan) if plan.server_cpus else None
        try:
            apply_settings(tensorflow, plan.runtime)
        except (RuntimeError, ValueError) as error:
            if servers is not None:
                servers.stop()
            raise DevicesAlreadyConfigured(f"what TensorFlow says of it: {error}", asked) from error
        if servers is not None:
            running = connect(tensorflow, servers)
        if plan.hosts:
            connect_hosts(tensorflow, plan.hosts, request.text)
    try:
        there = _devices_there(tensorflow)
    except (RuntimeError, ValueError, tensorflow.errors.OpError) as error:
        needed = f"{plan.describe()}, with which TensorFlow did not start ({error})"
        raise DevicesUnavailable(str(request), needed, inventory.names) from error
    if plan.hosts:
        plan = plan.with_devices(there)
    expected = _expected(plan)
    if there != expected:
        needed = ", ".join(name.short for name in expected)
        raise DevicesUnavailable(str(request), needed, tuple(name.short for name in there))
    return plan, running


def _expected(plan: Plan) -> list[DeviceName]:
    """All devices that must be there once the plan is in effect: the CPUs of this process, then the others."""
    devices = [device.parsed for device in plan.devices]
    host = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(plan.runtime.logical_cpus)]
    return host if devices == host else host + devices


def _devices_there(tensorflow: Any) -> list[DeviceName]:
    """The logical CPUs and GPUs of this process, then those of servers. Listing them starts the runtime."""
    own, served = [], []
    for kind in ("CPU", "GPU"):
        for device in tensorflow.config.list_logical_devices(kind):
            name = DeviceName.parse(device.name)
            # TensorFlow leaves the host out of the names of its own devices.
            if name.job in (None, "localhost"):
                own.append(DeviceName("localhost", 0, 0, name.kind, name.index))
            else:
                served.append(name)
    # By host; the sort keeps CPUs before GPUs.
    return own + sorted(served, key=lambda name: (name.job or "", name.task or 0))


def _set_switches(tensorflow: Any, plan: Plan) -> None:
    """What TensorFlow lets be set at any time, so that it is set again each time it is asked for."""
    tensorflow.config.set_soft_device_placement(plan.soft_placement)
    if plan.tf32 is not None:
        tensorflow.config.experimental.enable_tensor_float_32_execution(plan.tf32)
    if plan.determinism:
        tensorflow.config.experimental.enable_op_determinism()
