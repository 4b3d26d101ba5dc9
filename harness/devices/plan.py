"""The planner: from what is asked and what is there to what TensorFlow is to be told. Pure; nothing is configured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.devices.device import Device, DeviceKind
from harness.devices.hosts import Host
from harness.devices.inventory import Inventory, PhysicalGpu
from harness.devices.name import DeviceName
from harness.devices.profile import Options
from harness.devices.request import Request
from harness.devices.settings import GpuSettings, RuntimeSettings
from harness.devices.spec import AutoSpec, ClusterSpec, CoresSpec, CpuSpec, GpuSpec, LogicalGpuSpec
from harness.errors import DevicesUnavailable, HostUnreachable

#: What ``auto`` takes where there is no GPU: enough for uneven batches, few enough for a laptop.
AUTO_CPUS = 4
#: Part of the free memory that ``auto`` gives each of two logical GPUs. The fifth that is left over is for CUDA's
#: own context and libraries, which do not count towards TensorFlow's limit.
AUTO_MEMORY_PART = 0.4
#: What ``auto`` gives each logical GPU, in MiB, where the driver does not say how much is free: fits a 4 GiB card.
AUTO_MEMORY_MIB = 1024
#: Below this much each, in MiB, a card is as good as full: cuDNN's workspaces alone need more.
AUTO_MEMORY_LEAST_MIB = 256

#: Threads of the client's own pools with ``cores:N``. It splits and joins on the same cores as its servers.
CLIENT_THREADS = 1

_LOCAL = "/job:localhost/replica:0/task:0/device:"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to tell TensorFlow, and the devices that must then be there."""

    devices: tuple[Device, ...]
    runtime: RuntimeSettings
    determinism: bool
    tf32: bool | None
    soft_placement: bool
    reason: str
    #: The CPU of each server that has to run, in the order of ``devices``; empty where no device is on a server.
    server_cpus: tuple[int, ...] = ()
    #: The hosts of a cluster. Which devices they have is known once they are connected to: ``devices`` is empty before.
    hosts: tuple[Host, ...] = ()

    def same_effect(self, other: Plan) -> bool:
        """Whether both lead to the same state of TensorFlow, however they were asked for."""
        return self._effect() == other._effect()

    def _effect(self) -> tuple[object, ...]:
        devices = () if self.hosts else self.devices
        return devices, self.hosts, self.runtime, self.determinism, self.tf32, self.soft_placement

    def with_devices(self, names: Sequence[DeviceName]) -> Plan:
        """This plan with the devices of its hosts, in the order of the hosts.

        Raises:
            HostUnreachable: a host has none.
        """
        devices = []
        for host in self.hosts:
            own = [name for name in names if (name.job, name.task) == (host.job, host.task)]
            if not own:
                raise HostUnreachable(f"cluster:{host.address}", [f"{host} has no devices"])
            # CPUs first, as they are given.
            devices += [Device(str(name), "remote", f"{host.address}/{name.kind}:{name.index}") for name in own]
        where = ", ".join(map(str, self.hosts))
        reason = f"{_many(len(devices), 'device')} of {_many(len(self.hosts), 'host')}, as asked: {where}"
        return replace(self, devices=tuple(devices), reason=reason)

    def describe(self) -> str:
        """One line for messages."""
        kinds = f"{len(self.devices)} {self.devices[0].kind} device(s)" if self.devices else "remote devices"
        if self.hosts:
            kinds += f" of {', '.join(map(str, self.hosts))}"
        switches = [self.runtime.describe()]
        if self.tf32 is not None:
            switches.append(f"TF32 {'on' if self.tf32 else 'off'}")
        switches += ["op determinism on"] if self.determinism else []
        switches += ["soft placement on"] if self.soft_placement else []
        return f"{kinds}: {', '.join(switches)}"


def plan_devices(request: Request, inventory: Inventory, hosts: tuple[Host, ...] = ()) -> Plan:
    """Decide which devices to configure. ``hosts``: those of the cluster, where the spec is one.

    Raises:
        DevicesUnavailable: fewer devices are there than asked for. Logical CPUs are always there.
    """
    spec = request.spec
    if isinstance(spec, ClusterSpec):
        return _cluster(hosts, request.options)
    if isinstance(spec, CpuSpec):
        return _cpus(spec.count, request.options, f"{_many(spec.count, 'logical CPU')}, as asked{_hidden(inventory)}")
    if isinstance(spec, GpuSpec):
        return _gpus(spec, request, inventory)
    if isinstance(spec, LogicalGpuSpec):
        return _logical_gpus(spec, request, inventory)
    if isinstance(spec, CoresSpec):
        return _cores(spec, request, inventory)
    return _auto(spec, request, inventory)


def _auto(spec: AutoSpec, request: Request, inventory: Inventory) -> Plan:
    options, gpus = request.options, inventory.gpus
    if len(gpus) >= 2:
        there = f"{len(gpus)} real GPUs are here: {', '.join(str(gpu) for gpu in gpus)}"
        return _real(gpus, options, f"{spec} took gpu, because {there}")
    if not gpus:
        lost = f" that TensorFlow can use ({', '.join(inventory.unusable)})" if inventory.unusable else ""
        return _cpus(AUTO_CPUS, options, f"{spec} took cpu:{AUTO_CPUS}, because no GPU{lost} is here")
    card = gpus[0]
    if card.free_mib is None:
        each, source = AUTO_MEMORY_MIB, "the driver did not say how much is free"
    else:
        each = int(card.free_mib * AUTO_MEMORY_PART)
        source = f"{AUTO_MEMORY_PART:.0%} of the {card.free_mib} MiB that are free"
    if each < AUTO_MEMORY_LEAST_MIB:
        reason = f"{spec} took cpu:{AUTO_CPUS}, because the one GPU that is here is full: {card}"
        return _cpus(AUTO_CPUS, options, reason)
    reason = f"{spec} took gpu:2x{each}, because one GPU is here: {card}; {each} MiB for each logical GPU ({source})"
    return _sliced(card, 2, each, options, reason)


def _gpus(spec: GpuSpec, request: Request, inventory: Inventory) -> Plan:
    wanted = len(inventory.gpus) if spec.count is None else spec.count
    if wanted == 0 or wanted > len(inventory.gpus):
        raise DevicesUnavailable(str(request), _many(max(wanted, 1), "real GPU"), inventory.names)
    reason = f"{_many(wanted, 'real GPU')} of {len(inventory.gpus)}, as asked"
    return _real(inventory.gpus[:wanted], request.options, reason)


def _logical_gpus(spec: LogicalGpuSpec, request: Request, inventory: Inventory) -> Plan:
    needed = f"a GPU with {spec.count * spec.memory_mib} MiB free ({spec.count} x {spec.memory_mib} MiB)"
    if not inventory.gpus:
        raise DevicesUnavailable(str(request), needed, inventory.names)
    card = inventory.gpus[0]
    if card.free_mib is not None and spec.count * spec.memory_mib > card.free_mib:
        raise DevicesUnavailable(str(request), needed, inventory.names)
    reason = f"{_many(spec.count, 'logical GPU')} of {spec.memory_mib} MiB on {card}, as asked"
    return _sliced(card, spec.count, spec.memory_mib, request.options, reason)


def _cpus(count: int, options: Options, reason: str) -> Plan:
    """Logical CPUs: one thread inside an op and ``count`` between ops make each behave like one core."""
    intra = 1 if options.intra_op_threads is None else options.intra_op_threads
    inter = count if options.inter_op_threads is None else options.inter_op_threads
    runtime = RuntimeSettings(logical_cpus=count, intra_op_threads=intra, inter_op_threads=inter)
    return _plan("CPU", "logical-cpu", ["/physical_device:CPU:0"] * count, runtime, options, reason)


def _cores(spec: CoresSpec, request: Request, inventory: Inventory) -> Plan:
    """Servers on distinct physical cores, the first ones. The client has one thread in an op and one between ops."""
    there = f"{_many(len(inventory.cores), 'physical core')} that this process may use"
    if spec.count > len(inventory.cores):
        names = tuple(f"core of CPU {cpu}" for cpu in inventory.cores)
        needed = f"{_many(spec.count, 'CPU core')}, with no two devices on one"
        raise DevicesUnavailable(str(request), needed, (*names, f"{_many(inventory.cpus_allowed, 'CPU')} in all"))
    cpus = inventory.cores[: spec.count]
    options = request.options
    intra = CLIENT_THREADS if options.intra_op_threads is None else options.intra_op_threads
    inter = CLIENT_THREADS if options.inter_op_threads is None else options.inter_op_threads
    devices = tuple(
        Device(f"/job:core/replica:0/task:{task}/device:CPU:0", "core", f"/physical_device:CPU:core={cpu}")
        for task, cpu in enumerate(cpus)
    )
    return Plan(
        devices,
        RuntimeSettings(logical_cpus=1, intra_op_threads=intra, inter_op_threads=inter),
        options.determinism,
        options.tf32,
        options.soft_placement,
        f"{_many(spec.count, 'server')} on loopback, each with one thread on a core of its own "
        f"(CPU {', '.join(map(str, cpus))}) of {there}, as asked{_hidden(inventory)}",
        cpus,
    )


def _cluster(hosts: tuple[Host, ...], options: Options) -> Plan:
    """The client has a CPU to split and join on, and no GPU: it would take a card's memory from a server beside it."""
    runtime = RuntimeSettings(
        logical_cpus=1, intra_op_threads=options.intra_op_threads, inter_op_threads=options.inter_op_threads
    )
    switches = (options.determinism, options.tf32, options.soft_placement)
    return Plan((), runtime, *switches, f"{_many(len(hosts), 'host')}, as asked", hosts=hosts)


def _real(gpus: tuple[PhysicalGpu, ...], options: Options, reason: str) -> Plan:
    limits = () if options.memory_limit_mib is None else (options.memory_limit_mib,)
    settings = tuple(GpuSettings(gpu.physical, limits, options.memory_growth) for gpu in gpus)
    return _plan("GPU", "gpu", [gpu.physical for gpu in gpus], _gpu_runtime(settings, options), options, reason)


def _sliced(card: PhysicalGpu, count: int, memory_mib: int, options: Options, reason: str) -> Plan:
    settings = (GpuSettings(card.physical, (memory_mib,) * count),)
    return _plan("GPU", "logical-gpu", [card.physical] * count, _gpu_runtime(settings, options), options, reason)


def _gpu_runtime(gpus: tuple[GpuSettings, ...], options: Options) -> RuntimeSettings:
    return RuntimeSettings(1, gpus, options.intra_op_threads, options.inter_op_threads)


def _plan(
    letter: str, kind: DeviceKind, physical: list[str], runtime: RuntimeSettings, options: Options, reason: str
) -> Plan:
    devices = tuple(Device(f"{_LOCAL}{letter}:{index}", kind, under) for index, under in enumerate(physical))
    return Plan(devices, runtime, options.determinism, options.tf32, options.soft_placement, reason)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _hidden(inventory: Inventory) -> str:
    return f"; {_many(len(inventory.gpus), 'GPU')} hidden" if inventory.gpus else ""
