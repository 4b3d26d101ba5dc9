"""Plans: which settings TensorFlow gets, and which devices must exist then. Pure; nothing is configured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.devices.device import Device, DeviceKind
from harness.devices.hosts import Host
from harness.devices.inventory import Inventory
from harness.devices.name import DeviceName
from harness.devices.settings import RuntimeSettings
from harness.errors import HostUnreachable
from harness.plural import plural
from harness.softgpu import DescribedGpus, SoftwareGpus


@dataclass(frozen=True, slots=True)
class Options:
    """What a profile can set besides the devices. ``None`` leaves TensorFlow's own default.

    ``memory_growth`` and ``memory_limit_mib`` are for real GPUs. A thread count of 0 lets TensorFlow choose.
    ``determinism`` switches op determinism on; TensorFlow then refuses random ops without a seed.
    """

    memory_growth: bool | None = None
    memory_limit_mib: int | None = None
    intra_op_threads: int | None = None
    inter_op_threads: int | None = None
    determinism: bool = False
    tf32: bool | None = None
    soft_placement: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings for TensorFlow, and the devices that must then exist."""

    devices: tuple[Device, ...]
    runtime: RuntimeSettings
    options: Options
    reason: str
    #: The CPU of each server to start, in the order of ``devices``; empty where no device is on a server.
    server_cpus: tuple[int, ...] = ()
    #: The hosts of a cluster. Their devices are unknown until they are connected to: ``devices`` is empty before.
    hosts: tuple[Host, ...] = ()
    #: The software GPUs to give TensorFlow before anything else is set.
    software_gpus: SoftwareGpus | DescribedGpus | None = None

    def same_effect(self, other: Plan) -> bool:
        """Whether both lead to the same state of TensorFlow, however they were requested."""
        return self._effect() == other._effect()

    def _effect(self) -> tuple[object, ...]:
        devices = () if self.hosts else self.devices
        # The other options are in the settings of the runtime.
        switches = (self.options.determinism, self.options.tf32, self.options.soft_placement)
        return devices, self.hosts, self.software_gpus, self.runtime, switches

    def with_devices(self, names: Sequence[DeviceName]) -> Plan:
        """Add the devices of the hosts, in the order of the hosts. Raise HostUnreachable if a host has none."""
        devices = []
        for host in self.hosts:
            own = [name for name in names if (name.job, name.task) == (host.job, host.task)]
            if not own:
                raise HostUnreachable(f"cluster:{host.address}", [f"{host} has no devices"], HostUnreachable.RESTART)
            devices += [Device(str(name), "remote", f"{host.address}/{name.kind}:{name.index}") for name in own]
        where = ", ".join(map(str, self.hosts))
        reason = f"{plural(len(devices), 'device')} of {plural(len(self.hosts), 'host')}, as requested: {where}"
        return replace(self, devices=tuple(devices), reason=reason)

    def describe(self) -> str:
        """Describe the plan in one line."""
        kinds = plural(len(self.devices), f"{self.devices[0].kind} device") if self.devices else "remote devices"
        if self.hosts:
            kinds += f" of {', '.join(map(str, self.hosts))}"
        switches = [self.runtime.describe()]
        if self.options.tf32 is not None:
            switches.append(f"TF32: {'on' if self.options.tf32 else 'off'}")
        switches += ["op determinism: on"] if self.options.determinism else []
        switches += ["soft placement: on"] if self.options.soft_placement else []
        return "; ".join([kinds, *switches])


def local_plan(
    letters: str, kind: DeviceKind, physical: Sequence[str], runtime: RuntimeSettings, options: Options, reason: str
) -> Plan:
    """Plan logical devices of this process. ``letters`` is ``CPU`` or ``GPU``, ``physical`` what is under each."""
    names = (f"/job:localhost/replica:0/task:0/device:{letters}:{index}" for index in range(len(physical)))
    devices = tuple(Device(name, kind, under) for name, under in zip(names, physical, strict=True))
    return Plan(devices, runtime, options, reason)


def hidden_gpus(inventory: Inventory) -> str:
    """Name how many GPUs a plan without GPUs hides."""
    return f"; {plural(len(inventory.gpus), 'GPU')} hidden" if inventory.gpus else ""
