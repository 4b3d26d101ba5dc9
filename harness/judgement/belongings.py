"""Finds variables that are away from the one device that works with them.

A variable that several devices read, such as the weights of a model that each shard is run with, may be anywhere. One
that a single device computes with belongs there, as the weights of a stage, of a member or of a client do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from math import prod

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import MOVEMENT, computes
from harness.evidence.op import Op
from harness.evidence.roles import LOOKUPS
from harness.judgement.accounting import Account
from harness.judgement.shards import SHARE
from harness.judgement.strays import Misplaced
from harness.judgement.wiring import IDENTITIES, reached

VARIABLE_AWAY = (
    "a variable is not on the only device that computes with it, and is copied there in every call; create it in the "
    "scope of that device"
)
OR_THE_WORK = ", or compute with it in the scope of its own"
SLOT_AWAY = (
    "what a variable is updated with, such as its momentum, is not on the variable's device, and is copied there in "
    "every call; create it in the scope of that device"
)
SUM_AWAY = (
    "each device adds to a variable of its own, but one device has all of these variables, and is sent what is added "
    "in every step; create each variable in the scope of its device"
)
TERM_AWAY = (
    "each device has variables of its own, but what is computed of them alone is computed on one device for all, and "
    "sent back; compute it in the scope of the device that has the variables"
)
COPY_AWAY = (
    "a copy of weights for one device is made in the scope of another one; make it in the scope of the device that "
    "computes with it"
)

_ADDITIONS = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterAdd", "ResourceScatterSub"})


class Belongings:
    """Where each variable is, and which devices compute with it."""

    def __init__(self, account: Account, devices: Devices) -> None:
        self.account = account
        self.wiring = account.wiring
        self.variables = account.trace.variables
        self.devices = {device.parsed for device in devices}
        self.first, self.host = devices[0].parsed, DeviceName.parse(devices.host)
        self.work = {op.name for op in account.work}

    @cached_property
    def homes(self) -> dict[int, DeviceName]:
        """The device of each variable, from the ops that read it or write to it."""
        homes: dict[int, DeviceName] = {}
        for op in self.wiring.ops:
            if op.role in ("variable", "update") and op.device is not None:
                for variable in self.variables.get(op.name, ())[:1]:
                    homes[variable] = op.device
        return homes

    @cached_property
    def users(self) -> dict[int, list[Op]]:
        """The forward ops that compute with the value of each variable."""
        users: dict[int, list[Op]] = defaultdict(list)
        for op in self.wiring.ops:
            if op.role == "variable":
                for variable in self.variables.get(op.name, ()):
                    users[variable] += self._users(op)
        return users

    def _users(self, read: Op) -> Iterator[Op]:
        views = MOVEMENT | IDENTITIES

        def onward(op: Op) -> list[Op]:
            return self.wiring.readers(op) if op is read or op.type in views else []

        return (op for op in reached([read], onward) if op.name in self.work)

    @cached_property
    def owners(self) -> dict[int, DeviceName]:
        """The only device that computes with a variable, where there is one.

        Work on variables of several devices is a join, and what only leads to an update belongs to what is updated.
        """
        homes: dict[str, set[DeviceName | None]] = defaultdict(set)
        for variable, ops in self.users.items():
            for op in ops:
                homes[op.name].add(self.homes.get(variable))
        owners = {}
        for variable, ops in self.users.items():
            model = [op for op in ops if op.name not in self.leads_to_updates]
            places = {self.account.places[op.name] for op in model} | self._looked_up_on[variable]
            if len(places) == 1 and model and all(len(homes[op.name]) == 1 for op in model):
                owners[variable] = places.pop()
        return owners

    @cached_property
    def _looked_up_on(self) -> dict[int, set[DeviceName]]:
        """Where rows of each variable are looked up: on its own device, as TensorFlow does it there."""
        places: dict[int, set[DeviceName]] = defaultdict(set)
        for op in self.wiring.ops:
            if op.type in LOOKUPS and op.name in self.work:
                for variable in self.variables.get(op.name, ()):
                    places[variable].add(self.account.places[op.name])
        return places

    @cached_property
    def leads_to_updates(self) -> set[str]:
        """The ops whose results only updates of variables read in the end."""
        found: set[str] = set()
        for op in reversed(self.wiring.ops):
            readers = self.wiring.readers(op)
            if readers and all(reader.role == "update" or reader.name in found for reader in readers):
                found.add(op.name)
        return found

    @cached_property
    def slots(self) -> dict[int, DeviceName]:
        """The device of the variable that a slot, such as a momentum, is for: the only other one it leads to.

        A variable that several devices compute with belongs to none of them, and so do its slots.
        """
        ends: dict[int, set[int]] = defaultdict(set)
        for op in self.wiring.ops:
            if op.role == "variable" and op.name in self.leads_to_updates:
                for variable in set(self.variables.get(op.name, ())) - self.owners.keys():
                    ends[variable] |= self._updated_by(op) - {variable}
        slots = {}
        for variable, updated in ends.items():
            for of in updated if len(updated) == 1 else ():
                if self.owners.get(of) == self.homes.get(of) is not None:
                    slots[variable] = self.owners[of]
        return slots

    def _updated_by(self, read: Op) -> set[int]:
        """The variables that are updated by what an op reads."""
        ops = reached([read], lambda op: () if op.role == "update" else self.wiring.readers(op))
        return {variable for op in ops if op.role == "update" for variable in self.variables.get(op.name, ())[:1]}

    def misplaced_variables(self) -> Iterator[Misplaced]:
        """The ops that read a variable which is not on its owner."""
        away = {
            variable: owner
            for variable, owner in (self.owners | self.slots).items()
            if owner in self.devices and self.homes.get(variable, owner) != owner and self.is_large(variable)
            if not self._kept_on_host(variable)
        }
        placed = any(
            self.homes.get(variable) == owner and owner not in (self.first, self.host)
            for variable, owner in self.owners.items()
        )
        for op in self.wiring.ops:
            variable = next(iter(self.variables.get(op.name, ())), -1)
            if op.role != "variable" or variable not in away:
                continue
            chosen = self.homes[variable] in self.devices - {self.first, self.host}
            if chosen or placed or variable in self._copies:
                cause = SLOT_AWAY if variable in self.slots else VARIABLE_AWAY + OR_THE_WORK * chosen
                yield Misplaced(op, away[variable], cause)

    def misplaced_sums(self) -> Iterator[Misplaced]:
        """The additions to variables, one of each device, that are all on one of the devices."""
        sums = {name: scope for name, scope in self._added_in.items() if self._is_summed(name, scope)}
        alike: dict[int, dict[int, DeviceName]] = defaultdict(dict)
        ops = [op for op in self.wiring.ops if op.role == "update" and self.variables.get(op.name, (-1,))[0] in sums]
        for op in ops:
            variable = self.variables[op.name][0]
            alike[self.account.kinds[op.name]].setdefault(variable, sums[variable])
        for kind, group in alike.items():
            homes, scopes = {self.homes.get(variable) for variable in group}, set(group.values())
            if len(scopes) == len(group) > 1 and len(homes) == 1 and homes < scopes:
                found = [op for op in ops if self.account.kinds[op.name] == kind]
                yield from (Misplaced(op, sums[self.variables[op.name][0]], SUM_AWAY) for op in found)

    @cached_property
    def _added_in(self) -> dict[int, DeviceName]:
        """The only scope in which each large variable is updated, if it is added to."""
        scopes: dict[int, set[DeviceName | None]] = defaultdict(set)
        added = set()
        for op in self.wiring.ops:
            if op.role == "update" and (variables := self.variables.get(op.name)):
                scopes[variables[0]].add(op.requested)
                if op.type in _ADDITIONS:
                    added.add(variables[0])
        alone = {variable: next(iter(asked)) for variable, asked in scopes.items() if len(asked) == 1}
        return {each: at for each, at in alone.items() if at in self.devices and each in added and self.is_large(each)}

    def _is_summed(self, variable: int, scope: DeviceName) -> bool:
        """Whether other devices only join a variable with those of theirs."""
        for op in self.users.get(variable, ()):
            joined = {self._added_in.get(each) for each, ops in self.users.items() if op in ops}
            if self.account.places[op.name] != scope and len(joined) < 2:
                return False
        return True

    def _kept_on_host(self, variable: int) -> bool:
        """Whether a variable is on a host that is none of the devices, and no scope asks for the work with it."""
        unscoped = all(op.requested is None for op in self.users[variable])
        return unscoped and self.homes.get(variable) == self.host and self.host not in self.devices

    @cached_property
    def _copies(self) -> set[int]:
        """Variables that are written to, of which each device has its own, and which are all on one of the devices."""
        alike: dict[int, list[int]] = defaultdict(list)
        ops = [op for op in self.wiring.ops if op.role == "update"]
        written = {variable for op in ops for variable in self.variables.get(op.name, ())}
        for variable in written.intersection(self.owners):
            alike[self.account.kinds[self.users[variable][0].name]].append(variable)
        found: set[int] = set()
        for group in alike.values():
            owners = {self.owners[variable] for variable in group}
            homes = {self.homes.get(variable) for variable in group}
            if len(owners) == len(group) > 1 and len(homes) == 1 and homes <= owners:
                found.update(group)
        return found

    def is_large(self, variable: int) -> bool:
        """Whether a variable is more than a single number."""
        reads = (op for op in self.wiring.ops if variable in self.variables.get(op.name, ()) and op.role == "variable")
        shapes = [shape for op in reads for shape in self.account.trace.shapes.get(op.name, ())[:1]]
        return any(shape is None or prod(size or 1 for size in shape) > 1 for shape in shapes)

    def is_owned(self, variable: int, home: DeviceName) -> bool:
        """Whether a variable, or the one that it is a slot of, is computed with on its device alone."""
        if variable in self.owners:
            return self.owners[variable] == home
        return self.is_slot(variable) and (home in self.owners.values() or self._slots_are_shared_out)

    @cached_property
    def _slots_are_shared_out(self) -> bool:
        """Whether the slots of optimizers are spread over several devices."""
        return len({self.homes.get(each) for each in self.users if self.is_slot(each)} & self.devices) > 1

    def is_slot(self, variable: int) -> bool:
        """Whether only updates of variables read a variable."""
        return all(op.name in self.leads_to_updates for op in self.users.get(variable, ()))

    def misplaced_terms(self) -> Iterator[Misplaced]:
        """What one device computes of the variables of each device alone, such as a penalty, and sends back to it."""
        homes: dict[str, set[DeviceName | None]] = {}
        for op in self.wiring.ops:
            makers = self.wiring.makers(op)
            if op.role == "variable":
                homes[op.name] = {self.homes.get(each) for each in self.variables.get(op.name, ())}
            elif makers and op.role == "forward" and not self.account.depends(op):
                known = all(maker.name in homes or maker.role == "constant" for maker in makers)
                homes |= {op.name: {each for maker in makers for each in homes.get(maker.name, ())}} if known else {}
        apart: dict[str, DeviceName] = {}
        for op in reversed(self.wiring.ops):
            away = homes.get(op.name, set()) - {op.device}
            if op.role != "forward" or op.requested is None or op.device not in self.devices or len(away) != 1:
                continue
            (home,) = away
            ends = [each for each in self.wiring.readers(op) if each.role == "forward"]
            back = all(each.device == home or apart.get(each.name) == home for each in ends)
            if home in self.devices and ends and back and computes(op):
                apart[op.name] = home
        kinds = {self.account.kinds[name] for name in apart}
        alike: dict[int, list[Op]] = defaultdict(list)
        for op in self.wiring.ops:
            if op.name in homes and op.role == "forward" and self.account.kinds[op.name] in kinds:
                alike[self.account.kinds[op.name]].append(op)
        found = []
        for group in alike.values():
            owners = {apart.get(op.name, op.device) for op in group}
            if len({op.device for op in group}) == 1 and len(owners) == len(group) > 1:
                found += [Misplaced(op, apart[op.name], TERM_AWAY) for op in group if op.name in apart]
        total = sum(map(self.account.weight, self.account.work))
        if sum(self.account.weight(each.op) for each in found) >= SHARE * total:
            yield from found

    def misplaced_copies(self) -> Iterator[Misplaced]:
        """The copies of weights that are each for one device alone, and made in the scope of another one for several.

        What a device makes for itself alone of the same weights is one of these copies.
        """
        found: list[Misplaced] = []
        served: dict[DeviceName, set[DeviceName]] = defaultdict(set)
        copied: dict[DeviceName, set[int]] = defaultdict(set)
        for op in self.wiring.ops:
            asked, makers = op.requested, self.wiring.before(op)
            if op.type not in IDENTITIES | {"Cast"} or asked not in self.devices or op.role == "gradient":
                continue
            if not makers or any(maker.role != "variable" for maker in makers):
                continue
            places = {self.account.places[user.name] for user in self._users(op)}
            variables = {each for maker in makers for each in self.variables.get(maker.name, ())}
            if places == {asked}:
                copied[asked] |= variables
            elif len(places) == 1 and places <= self.devices:
                found.append(Misplaced(op, places.pop(), COPY_AWAY))
                served[asked] |= {found[-1].expected} | ({asked} if variables & copied[asked] else set())
        yield from (each for each in found if each.op.requested and len(served[each.op.requested]) > 1)
