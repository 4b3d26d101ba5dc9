"""Finds updates of variables that are computed away from the one device that works with the variables.

The arithmetic between a gradient and an update belongs where the variable is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from harness.devices.name import DeviceName
from harness.evidence.arithmetic import computes
from harness.evidence.op import Op
from harness.judgement.belongings import Belongings
from harness.judgement.strays import Misplaced
from harness.judgement.wiring import reached, sources_of

UPDATE_AWAY = (
    "the update of a variable is computed away from the only device that computes with the variable, where it is; "
    "compute the update in the scope of that device"
)
SLOT_UPDATE_AWAY = (
    "several devices keep parts of an optimizer's state, and the update of one part is computed on another part's "
    "device; compute it in the scope of its own device"
)


UPDATES_OF_ALL = (
    "several devices have a variable of their own for the same, and one of them computes the updates of all; compute "
    "each in the scope of the device that has the variable"
)


class Updates:
    """What leads to updates of variables: where it is computed, of what, and where the variables are."""

    def __init__(self, belongings: Belongings) -> None:
        self.belongings = belongings
        self.account, self.wiring = belongings.account, belongings.wiring
        self.variables, self.devices = belongings.variables, belongings.devices

    def misplaced(self) -> Iterator[Misplaced]:
        """What a scope puts elsewhere than the variables' only user, of what only leads to their update.

        Gradients that were made elsewhere are another finding. So what is no optimizer's is one only if all that it is
        made of is where the variables are, and one device does it: what several do for a variable is shared out.
        """
        lines = self.account.trace.places
        places: dict[tuple[object, ...], set[DeviceName | None]] = defaultdict(set)
        for op in self.wiring.ops:
            for home, _ in self._updates.get(op.name, ()):
                places[op.type, lines.get(op.name), home].add(op.device)
        for op in self.wiring.ops:
            home = self._updated_on(op)
            if home not in self.devices or op.device in (None, home) or not computes(op):
                continue
            if op.requested is None or op.device not in self.devices:
                continue  # the caller's, in no scope, or in one of the host
            gradients, has_own = self._gradients_of(op), self._has_own_variable(op)
            for_one = op.name in self.account.optimizer and len(self._updates[op.name]) == 1
            of_optimizer = for_one and (home in gradients if gradients else not has_own)
            sent = op.role == "forward" and self._made_of[op.name] == {home} and not has_own
            if of_optimizer or (sent and len(places[op.type, lines.get(op.name), home]) == 1):
                alone = home in self.belongings.owners.values()
                yield Misplaced(op, home, UPDATE_AWAY if alone else SLOT_UPDATE_AWAY)

    def of_all(self) -> Iterator[Misplaced]:
        """What one of several devices computes for the variables of all, of what each of them has, one by one.

        What reads the results of several devices is a join, and the work of a server.
        """
        alike: dict[int, dict[DeviceName, Op]] = defaultdict(dict)
        for op in self.wiring.ops:
            variable = next(iter(self.variables.get(op.name, ())), -1)
            home = self.belongings.homes.get(variable)
            if op.role == "update" and home in self.devices and self.belongings.is_large(variable):
                alike[self.account.kinds[op.name]].setdefault(home, op)
        for group in (group for group in alike.values() if len(group) > 1):
            behind = {home: self._computed_together(update) for home, update in group.items()}
            places = {op.device for ops in behind.values() for op in ops}
            names = [{op.name for op in ops} for ops in behind.values()]
            if len(places) != 1 or not places <= group.keys() or set.intersection(*names):
                continue
            if all(self._is_made_of(home, ops) for home, ops in behind.items()):
                away = ((op, home) for home, ops in behind.items() for op in ops if op.device != home)
                yield from (Misplaced(op, home, UPDATES_OF_ALL) for op, home in away if computes(op))

    def _computed_together(self, update: Op) -> list[Op]:
        """The forward work that a scope puts on one device, up to an update."""

        def makers(op: Op) -> list[Op]:
            made = [maker for maker in self.wiring.makers(op) if maker.role == "forward" and maker.requested]
            return [maker for maker in made if op is update or maker.device == op.device]

        return [op for op in reached([update], makers) if op is not update]

    def _is_made_of(self, home: DeviceName, ops: list[Op]) -> bool:
        """Whether work reads what a device has computed, and nothing that yet another device has."""
        makers = (maker for op in ops for maker in self.wiring.makers(op) if _is_made(maker))
        places = {maker.device for maker in makers}
        return home in places and places - {op.device for op in ops} <= {home}

    def _updated_on(self, op: Op) -> DeviceName | None:
        """Where the variables are that an op leads to updates of: on one device, or on the one that it is made on.

        What also leads to the update of a variable that belongs where the op runs is at home there.
        """
        ends = self._updates.get(op.name, frozenset())
        homes = {home for home, _ in ends}
        if len(homes) > 1:
            homes = set() if (op.device, True) in ends else homes & self._made_of[op.name]
        home = homes.pop() if len(homes) == 1 else None
        return home if (home, True) in ends else None

    @cached_property
    def _updates(self) -> dict[str, frozenset[tuple[DeviceName | None, bool]]]:
        """Of each op that leads to updates: where the updated variables are, and whether one there is more than a
        number, and computed with there alone."""
        found: dict[str, frozenset[tuple[DeviceName | None, bool]]] = {}
        owned: dict[int, bool] = {}
        for op in reversed(self.wiring.ops):
            if op.role == "update":
                for variable in self.variables.get(op.name, ())[:1]:
                    if (home := self.belongings.homes.get(variable)) is not None and variable not in owned:
                        belongs = self.belongings.is_owned(variable, home)
                        owned[variable] = belongs and self.belongings.is_large(variable)
                    found[op.name] = frozenset({(home, owned.get(variable, False))})
            elif op.name in self.belongings.leads_to_updates or op.name in self.account.optimizer:
                found[op.name] = frozenset().union(*(found.get(each.name, ()) for each in self.wiring.readers(op)))
        return found

    @cached_property
    def _made_of(self) -> dict[str, set[DeviceName | None]]:
        """Of each op that leads to updates: where that is which its device gets for it.

        Numbers, and variables that the updates of several devices read, may be anywhere.
        """
        found: dict[str, set[DeviceName | None]] = {}
        for op in self.wiring.ops:
            if op.name not in self._updates:
                continue
            found[op.name] = set()
            for maker in self.wiring.makers(op):
                if maker.role == "variable":
                    variables = [each for each in self.variables.get(maker.name, ()) if each in self._of_one_device]
                    found[op.name].update(map(self.belongings.homes.get, variables))
                elif maker.name in found and maker.device in (op.device, None):
                    found[op.name] |= found[maker.name]
                elif _is_made(maker):
                    found[op.name].add(maker.device)
        return found

    def _has_own_variable(self, op: Op) -> bool:
        """Whether an op is made of a variable that is where it runs, such as a client's beside the server's."""
        behind = reached([op], lambda each: [maker for maker in self._makers(each) if maker.device == op.device])
        read = (maker for each in behind for maker in self.wiring.makers(each) if maker.role == "variable")
        found = (each for maker in read for each in self.variables.get(maker.name, ()))
        return any(self.belongings.homes.get(each) == op.device and self.belongings.is_large(each) for each in found)

    @cached_property
    def _of_one_device(self) -> set[int]:
        """The variables, other than single numbers, that are read for updates on no more than one device.

        A slot, such as a momentum, is of its own device, if it is itself one of those updated, and no other device has
        the variable that it is for.
        """
        homes: dict[int, set[DeviceName | None]] = defaultdict(set)
        for op in self.wiring.ops:
            if op.role == "variable":
                for variable in self.variables.get(op.name, ()):
                    readers = (each for each in self.wiring.readers(op) if each.name in self._updates)
                    read = (each for each in readers if any(name == op.name for name, _ in sources_of(each)))
                    homes[variable].update(home for each in read for home, _ in self._updates[each.name])
        slots = {each for each in homes if self.belongings.is_slot(each)} - self.belongings.slots.keys()
        own = {each for each in slots if self.belongings.homes.get(each) in homes[each]}
        alone = own.union(each for each, ends in homes.items() if len(ends) < 2)
        return {each for each in alone if self.belongings.is_large(each)}

    def _gradients_of(self, op: Op) -> set[DeviceName]:
        """Where the gradients were made that an op of an optimizer works on."""
        behind = reached([op], self._makers)
        makers = (self.wiring.maker(name) for each in behind for name in each.inputs)
        return {maker.device for maker in makers if maker is not None and maker.role == "gradient" and maker.device}

    def _makers(self, op: Op) -> list[Op]:
        """What an op of an update reads that is the update's too: of an optimizer's, or of variables alone."""
        made = [each for each in self.wiring.before(op) if each.name in self.belongings.leads_to_updates]
        of_variables = [each for each in made if each.role == "forward" and not self.account.depends(each)]
        return [*of_variables, *(each for each in self.wiring.before(op) if each.name in self.account.optimizer)]


def _is_made(op: Op) -> bool:
    """Whether a device made the result of an op: it computed it, or summed gradients, as of a loss and a penalty."""
    return computes(op) or op.role == "gradient"
