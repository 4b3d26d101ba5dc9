"""``cluster:``: the devices of TensorFlow servers on other hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from harness.devices.address import Address, distinct
from harness.devices.hosts import Host
from harness.devices.inventory import Inventory, read_inventory
from harness.devices.kinds.kind import MAX_COUNT, DeviceSpec, Form, Request
from harness.devices.plan import Plan
from harness.devices.resolvers import ResolverName, find_hosts
from harness.devices.settings import RuntimeSettings
from harness.plural import plural

_RESOLVERS: tuple[ResolverName, ...] = get_args(ResolverName)
#: The job of hosts that a spec lists.
JOB = "worker"
_CLUSTER = "cluster:"
_WHICH_HOSTS = "list the hosts, as in 'cluster:10.0.0.1:8470,10.0.0.2:8470'"


@dataclass(frozen=True, slots=True)
class ClusterSpec(DeviceSpec):
    """The devices of the TensorFlow servers on ``hosts``, or on the hosts that ``resolver`` finds."""

    FORMS = (
        Form("cluster:HOST:PORT,HOST:PORT", "all devices of the TensorFlow servers on these hosts"),
        *(
            Form(f"{_CLUSTER}{name}", f"all devices of the hosts that TensorFlow's {name} resolver finds")
            for name in _RESOLVERS
        ),
    )
    HINTS = (("cluster", _WHICH_HOSTS),)
    IN_PROFILE = False

    hosts: tuple[Address, ...] = ()
    resolver: ResolverName | None = None

    def __str__(self) -> str:
        return _CLUSTER + (self.resolver or ",".join(map(str, self.hosts)))

    @classmethod
    def parse(cls, text: str) -> ClusterSpec | None:
        """Parse ``cluster:HOST:PORT,…`` or ``cluster:RESOLVER``."""
        if not text.startswith(_CLUSTER):
            return None
        rest = text[len(_CLUSTER) :]
        for resolver in _RESOLVERS:
            if rest == resolver:
                return cls(resolver=resolver)
        if not rest:
            raise ValueError(_WHICH_HOSTS)
        parts = rest.split(",")
        if len(parts) > MAX_COUNT:
            raise ValueError(f"at most {MAX_COUNT} hosts are supported")
        try:
            return cls(distinct(parts))
        except ValueError as error:
            raise ValueError(f"{error}; a resolver can be named instead of hosts: {', '.join(_RESOLVERS)}") from error

    def listed_hosts(self) -> tuple[Host, ...]:
        """Give the hosts that the spec lists itself; none with a resolver."""
        return tuple(Host(JOB, task, address) for task, address in enumerate(self.hosts))

    def inventory(self, tensorflow: Any) -> Inventory:
        """Look at this machine, and find the hosts."""
        hosts = self.listed_hosts() if self.resolver is None else find_hosts(tensorflow, self.resolver)
        return replace(read_inventory(tensorflow), hosts=hosts)

    def plan(self, request: Request, inventory: Inventory) -> Plan:
        """Plan a client with one CPU to split and join on. A GPU in it would compete with a server beside it."""
        options = request.options
        runtime = RuntimeSettings(1, (), options.intra_op_threads, options.inter_op_threads)
        reason = f"{plural(len(inventory.hosts), 'host')}, as requested"
        return Plan((), runtime, options, reason, hosts=inventory.hosts)
