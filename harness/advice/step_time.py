"""How long a step takes on devices that are described by their rates: a model of time, in plain numbers.

Each device runs one task at a time, of those that are ready the one that comes first in the graph. A task takes as long
as its arithmetic or its memory traffic, whichever is longer (S. Williams et al., Roofline, CACM 2009), and the time to
start it. What another device needs is copied when it is made; a device sends one copy at a time, and gets one. So
serial replicas, the bubbles of a pipeline and copies in the way come out of the order and the devices of the tasks.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True)
class Task:
    """One op.

    ``inputs`` are the tasks that it waits for, each with the bytes that it needs of it: 0 where it only waits. ``flop``
    are the arithmetic operations of a product or a convolution, ``traffic_bytes`` what it reads and writes. A ``view``
    starts no kernel. ``members`` are the tasks of a collective, this one among them: they start together, and each
    gives ``traffic_bytes``.
    """

    name: str
    device: str
    inputs: Mapping[str, float] = field(default_factory=dict)
    flop: float = 0.0
    traffic_bytes: float = 0.0
    dtype: str = "float32"
    view: bool = False
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A way between two devices: bytes per second one way.

    A copy keeps both ends busy for ``start_s`` and its bytes, and arrives ``latency_s`` later.
    """

    bytes_s: float
    start_s: float = 0.0
    latency_s: float = 0.0

    def busy_s(self, size_bytes: float) -> float:
        """How long a copy keeps both ends busy."""
        return self.start_s + size_bytes / self.bytes_s


@dataclass(frozen=True, slots=True)
class Rates:
    """What one device does in a second: ``product_flops`` by dtype (``""``: any other one), and its memory's bytes.

    ``launch_s`` is the time to start a kernel, ``view_s`` that to pass over an op that starts none.
    """

    product_flops: Mapping[str, float]
    memory_bytes_s: float
    launch_s: float = 0.0
    view_s: float = 0.0

    def seconds(self, task: Task) -> float:
        """The time of a task that is no collective."""
        if task.view:
            return self.view_s
        rate = self.product_flops.get(task.dtype, self.product_flops.get("", inf))
        return self.launch_s + max(task.flop / rate, task.traffic_bytes / self.memory_bytes_s)


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices of one kind, and a host: all devices whose names begin with ``host``.

    ``step_s`` is what a step takes besides, whatever it computes; ``remote_s`` that for each device that takes part.
    A task takes ``together`` times as long while another device computes too, as cores that share their memory do.
    """

    device: Rates
    host: Rates
    between: Link
    to_host: Link
    step_s: float = 0.0
    remote_s: float = 0.0
    together: float = 1.0
    host_name: str = "CPU:0"

    def rates(self, device: str) -> Rates:
        """The rates of a device."""
        return self.host if device == self.host_name else self.device

    def link(self, source: str, destination: str) -> Link:
        """The way from one device to another one."""
        return self.to_host if self.host_name in (source, destination) else self.between

    def collective_s(self, size_bytes: float, members: int) -> float:
        """The time of an all-reduce in a ring: each member sends ``2 (n - 1) / n`` of its bytes, in as many parts."""
        parts = 2 * (members - 1)
        return parts * (self.between.busy_s(size_bytes / max(members, 1)) + self.between.latency_s)


def step_seconds(tasks: Sequence[Task], machine: Machine) -> float:
    """Return how long the tasks take, in seconds; they are in the order of the graph.

    Raise ValueError where tasks wait for each other in a circle, or for an unknown one.

    Examples:
        >>> rates = Rates({"": 1e12}, 1e9, launch_s=1e-5)
        >>> machine = Machine(rates, rates, Link(1e9), Link(1e9))
        >>> step_seconds([Task("a", "GPU:0", flop=1e12), Task("b", "GPU:1", flop=1e12)], machine)
        1.00001
    """
    return _Simulation(tasks, machine).run()


class _Simulation:
    def __init__(self, tasks: Sequence[Task], machine: Machine) -> None:
        self.machine, self.tasks = machine, {task.name: task for task in tasks}
        self.order = {task.name: number for number, task in enumerate(tasks)}
        self.readers: dict[str, list[str]] = defaultdict(list)
        self.missing = {task.name: len(task.inputs) for task in tasks}
        for task in tasks:
            for name in task.inputs:
                self.readers[name].append(task.name)
        #: When what a task needs has arrived, as far as is known; when each device is free to compute, send and get.
        self.ready = dict.fromkeys(self.tasks, 0.0)
        self.free: dict[str, float] = defaultdict(float)
        self.sends: dict[str, float] = defaultdict(float)
        self.gets: dict[str, float] = defaultdict(float)
        self.waiting: dict[str, set[str]] = {}
        #: By device: tasks that are ready at some time, and of those that are ready now the first in the graph.
        self.later: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
        self.now: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.ended = 0.0
        self.done = 0

    def run(self) -> float:
        for name, missing in self.missing.items():
            if not missing:
                self._arrived(name)
        while starts := [(self._start(device), device) for device in {*self.later, *self.now} if self._any(device)]:
            start, device = min(starts)
            while self.later[device] and self.later[device][0][0] <= start:
                _, number, name = heapq.heappop(self.later[device])
                heapq.heappush(self.now[device], (number, name))
            _, name = heapq.heappop(self.now[device])
            task = self.tasks[name]
            self.free[device] = start + self._seconds(task, start)
            self._finish(task, self.free[device])
        if self.done < len(self.tasks):
            left = next(name for name, missing in self.missing.items() if missing)
            raise ValueError(f"{left} waits for an unknown task, or for itself")
        used = {task.device for task in self.tasks.values()} - {self.machine.host_name}
        return self.machine.step_s + len(used) * self.machine.remote_s + self.ended

    def _seconds(self, task: Task, start: float) -> float:
        seconds = self.machine.rates(task.device).seconds(task)
        others = (free for device, free in self.free.items() if device not in (task.device, self.machine.host_name))
        return seconds * (self.machine.together if max(others, default=0.0) > start else 1.0)

    def _any(self, device: str) -> bool:
        return bool(self.later[device] or self.now[device])

    def _start(self, device: str) -> float:
        if self.now[device]:
            return self.free[device]
        return max(self.free[device], self.later[device][0][0])

    def _arrived(self, name: str) -> None:
        """All that a task needs is known to arrive."""
        task = self.tasks[name]
        if len(task.members) < 2:
            heapq.heappush(self.later[task.device], (self.ready[name], self.order[name], name))
            return
        there = self.waiting.setdefault(min(task.members), set())
        there.add(name)
        if there == set(task.members):
            start = max(max(self.ready[each], self.free[self.tasks[each].device]) for each in there)
            size = max(self.tasks[each].traffic_bytes for each in there)
            end = start + self.machine.collective_s(size, len(there))
            for each in there:
                self._finish(self.tasks[each], end)

    def _finish(self, task: Task, end: float) -> None:
        self.ended, self.done = max(self.ended, end), self.done + 1
        arrivals = {task.device: end}
        for reader in self.readers[task.name]:
            other = self.tasks[reader]
            if other.device not in arrivals:
                size = max(
                    self.tasks[each].inputs[task.name]
                    for each in self.readers[task.name]
                    if self.tasks[each].device == other.device
                )
                arrivals[other.device] = self._copied(task.device, other.device, size, end)
            self.ready[reader] = max(self.ready[reader], arrivals[other.device])
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self._arrived(reader)

    def _copied(self, source: str, destination: str, size_bytes: float, made: float) -> float:
        """When a copy arrives. The host sends to several devices at once. A mere wait keeps no link busy."""
        link, host = self.machine.link(source, destination), self.machine.host_name
        if not size_bytes:
            return made + link.latency_s
        begin = max(made, 0.0 if source == host else self.sends[source], self.gets[destination])
        end = begin + link.busy_s(size_bytes)
        if source != host:
            self.sends[source] = end
        if destination != host:
            self.gets[destination] = end
        return end + link.latency_s
