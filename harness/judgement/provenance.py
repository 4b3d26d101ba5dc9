"""Traces the parts of a batch through a program: from which part each tensor was made.

A program cuts a batch with ``tf.split`` or ``tf.unstack``, by slices of one tensor, by batches of one dataset, or gets
the parts as arguments that differ in their rows alone. All parts that were cut from one tensor are a family, and each
family is followed by itself. An op that reads tensors of one part works on that part; one that reads tensors of several
is a join. A backward op works on what its forward op works on. Shapes are no data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from harness.evidence.arithmetic import SPLITS
from harness.evidence.op import Op
from harness.judgement.wiring import Wiring, sources_of
from harness.proof.rules.table import FAMILIES

#: What an op works on that reads tensors of several parts.
SEVERAL = -1
#: From the ops that work on parts of one family to the part that each works on, or SEVERAL.
Family = Mapping[str, int]

#: Ops that read no numbers, but how many there are.
SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
#: Ops that cut parts out of a tensor, one each.
SLICES = frozenset({"Gather", "GatherNd", "GatherV2", "Slice", "StridedSlice"})
#: Which of its two operands gives such an op its rows: the other one is what they are multiplied with or looked up in.
ROW_OPERANDS = {"BatchMatMulV2": 0, "GatherNd": 1, "GatherV2": 1, "MatMul": 0}
#: Ops whose result has the numbers of what they read, in the same rows.
VIEWS = frozenset({"Cast", "EnsureShape", "ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient", "Transpose"})
_CUTS = SPLITS | {"DynamicPartition"}
#: An output of an op by its number; ``None`` for all of them.
_Part = tuple[str, int | None]


class Cut(NamedTuple):
    """A tensor that is cut into parts: its name where it is one, the parts by their numbers, and what works on them.

    ``ops`` work on one of the parts alone.
    """

    whole: str | None
    parts: Mapping[_Part, int]
    family: Family
    ops: list[Op]


class Provenance:
    """The families of the parts that a program cuts its tensors into."""

    def __init__(self, wiring: Wiring, without: Set[tuple[str, str]] = frozenset()) -> None:
        """``without``: what some ops read, by the names of both, counts as not read."""
        self.wiring = wiring
        self._without = without
        self.sources = {op.name: self._sources(op) for op in wiring.ops}
        self._readers: dict[str, list[tuple[Op, int]]] = defaultdict(list)
        self._backward: dict[str, list[Op]] = defaultdict(list)
        for op in wiring.ops:
            # A backward op works on the rows of its forward op, whatever else its gradient has come through.
            if op.role == "gradient" and op.forward in wiring.by_name:
                self._backward[op.forward or ""].append(op)
            elif op.type not in SHAPES:
                for name, port in self.sources[op.name]:
                    self._readers[name].append((op, port))

    def _sources(self, op: Op) -> list[tuple[str, int]]:
        """The tensors that an op reads: the op that made each, and the number of its output."""
        read = [(name, port) for name, port in sources_of(op) if (name, op.name) not in self._without]
        return [self._through(name, port) for name, port in read]

    def _through(self, name: str, port: int) -> tuple[str, int]:
        """A tensor, seen through ops that hand on several at once."""
        op = self.wiring.by_name.get(name)
        while op is not None and op.type == "IdentityN" and len(op.inputs) == len(op.dtypes) > port >= 0:
            name, port = op.inputs[port], op.ports[port] if op.ports else 0
            op = self.wiring.by_name.get(name)
        return name, port

    def cuts(self) -> Iterator[Cut]:
        """One after the other, where there are at least two parts."""
        for (kind, key), parts in self._cuts().items():
            if len(set(parts.values())) > 1:
                family = self.followed(parts)
                ops = [self.wiring.by_name[name] for name, part in family.items() if part != SEVERAL]
                yield Cut(self._whole(kind, key), parts, family, ops)

    def _whole(self, kind: str, key: Any) -> str | None:
        """The tensor that the parts of a family were cut from, where it is one: the op or argument that made it."""
        if kind == "split":
            whole = self._split(self.wiring.by_name[key[0]])
            return whole[0] if whole else None
        return key[0] if kind == "slice" else None

    def _split(self, op: Op) -> tuple[str, int] | None:
        """The tensor that a split cuts."""
        # Split alone reads the axis before the tensor.
        sources = self.sources[op.name]
        return self.base(*sources[-1 if op.type == "Split" else 0]) if sources else None

    def _cuts(self) -> dict[tuple[str, Any], dict[_Part, int]]:
        """All parts that were cut from one tensor, numbered."""
        groups: dict[tuple[str, Any], dict[_Part, int]] = defaultdict(dict)
        # Two splits of one tensor into as many parts, as in each layer of a graph network, make the same parts, and two
        # slices at one place the same part.
        firsts: dict[tuple[object, ...], str] = {}
        slices = self.wiring.trace.slices
        for name in self._readers:
            if name.startswith("argument["):
                # Parts of one batch are alike in all but the number of their rows.
                group = groups["arguments", self.wiring.arguments.get(name)]
                group[name, None] = len(group)
        for op in self.wiring.ops:
            if op.type in _CUTS:
                ports = sorted({port for _, port in self._readers[op.name]})
                whole = self._split(op)
                first = op.name if whole is None else firsts.setdefault((op.type, len(op.dtypes), whole), op.name)
                groups["split", (first,)].update({(op.name, port): port for port in ports})
            elif op.type in SLICES and self.sources[op.name] and op.role == "forward":
                base = self.base(*self.sources[op.name][0])
                maker = self.wiring.by_name.get(base[0])
                if maker is None or maker.type not in SHAPES:
                    group = groups["slice", base]
                    place = slices.get(op.name, op.name)
                    first = firsts.setdefault(("slice", base, place), op.name)
                    group[op.name, None] = group.get((first, None), len({*group.values()}))
            elif op.type == "IteratorGetNext":
                group = groups["dataset", None]
                group[op.name, None] = len(group)
        return groups

    def base(self, name: str, port: int) -> tuple[str, int]:
        """The tensor that a tensor is a view of."""
        op = self.wiring.by_name.get(name)
        while op is not None and op.type in VIEWS and self.sources[op.name]:
            name, port = self.sources[op.name][0]
            op = self.wiring.by_name.get(name)
        return name, port

    def made_of(self, tensors: Iterable[tuple[str, int]], known: Callable[[Op], bool]) -> set[tuple[str, int]]:
        """The tensors and all that they were made of, up to those of ops that are not ``known``."""
        waiting, found = [*tensors], set[tuple[str, int]]()
        while waiting:
            tensor = waiting.pop()
            op = self.wiring.by_name.get(tensor[0])
            if tensor not in found and (op is None or known(op)):
                found.add(tensor)
                waiting += self.sources[op.name] if op is not None else ()
        return found

    def followed(self, parts: Mapping[_Part, int]) -> Family:
        """What works on each of these parts, or on several of them."""
        apart: set[tuple[str, str]] = set()
        while True:
            found = self._followed(parts, apart)
            new = set(self._compared(parts, found)) - apart
            if not new:
                return found
            apart |= new

    def _compared(self, parts: Mapping[_Part, int], found: Family) -> Iterator[tuple[str, str]]:
        """The ops whose rows are those of one part, and what they compare them with or look them up in: several parts.

        As a shard's queries and all keys, a shard's edges and the nodes, or a shard and the mean of the batch, which is
        the same for many of its numbers. So are a part and the few rows next to it that are cut out of its neighbours.
        """
        for name in found:
            op = self.wiring.by_name[name]
            sources = self.sources[name]
            if found[name] != SEVERAL or len(sources) < 2 or op.role == "gradient":
                continue
            yield from ((margin, name) for margin in self._margins(op, parts, found))
            of = [_part_of(source, parts, found) for source in sources[:2]]
            one_by_one = op.type in FAMILIES["elementwise"] and len(sources) == 2
            at = ROW_OPERANDS.get(op.type)
            for rows, other in ((0, 1), (1, 0)):
                if of[rows] in (None, SEVERAL) or of[other] != SEVERAL:
                    continue
                if at == rows or (one_by_one and self._is_stretched(sources[other][0], name)):
                    yield sources[other][0], name

    def _margins(self, op: Op, parts: Mapping[_Part, int], found: Family) -> Iterator[str]:
        """What is cut out of other parts and joined to a part that has at least as many numbers as all of it."""
        if op.type != "ConcatV2":
            return
        of = {source: _part_of(source, parts, found) for source in self.sources[op.name]}
        size = {source: self.wiring.size(source[0]) or 0 for source, part in of.items() if part is not None}
        main = max(size, key=lambda source: size[source])
        others = [source for source in size if source != main and of[source] != of[main]]
        few = of[main] != SEVERAL and sum(size[source] for source in others) <= size[main]
        if few and all(size[source] and self._is_cut_from_a_part(source, parts, found) for source in others):
            yield from (name for name, _ in others)

    def _is_cut_from_a_part(self, source: tuple[str, int], parts: Mapping[_Part, int], found: Family) -> bool:
        maker = self.wiring.by_name.get(self.base(*source)[0])
        if maker is None or maker.type not in SLICES | SPLITS:
            return False
        return any(_part_of(each, parts, found) is not None for each in self.sources[maker.name])

    def _is_stretched(self, operand: str, name: str) -> bool:
        """Whether an op on numbers one by one uses each number of an operand several times."""
        given, made = self.wiring.size(operand), self.wiring.size(name)
        return given is not None and made is not None and given < made

    def _followed(self, parts: Mapping[_Part, int], apart: Set[tuple[str, str]]) -> dict[str, int]:
        """The same, where some ops are not followed to some of their readers."""
        found: dict[str, int] = {}
        waiting: list[tuple[Op, int]] = []
        for (name, port), part in parts.items():
            waiting += [(reader, part) for reader, read in self._readers.get(name, ()) if port in (None, read)]
            if port is None and name in self.wiring.by_name:
                found[name] = part
        while waiting:
            op, part = waiting.pop()
            known = found.get(op.name)
            part = part if known in (None, part) else SEVERAL
            if part != known:
                found[op.name] = part
                readers = self._readers.get(op.name, ())
                waiting += [(reader, part) for reader, _ in readers if (op.name, reader.name) not in apart]
                waiting += [(backward, part) for backward in self._backward.get(op.name, ())]
        return found


def _part_of(source: tuple[str, int], parts: Mapping[_Part, int], found: Family) -> int | None:
    """Which part a tensor is, or was made of."""
    return parts.get(source, parts.get((source[0], None), found.get(source[0])))
