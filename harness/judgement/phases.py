"""Finds a step of the work on each shard that runs on the device of another shard, and has no reason to.

The devices change places for it: each does the step on as many shards as in the rest of the program, but on others. And
the step reads only its shard, what is the same for all shards, and what is on the shard's own device. There it would
take as long, and nothing would be copied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from harness.devices.name import DeviceName
from harness.evidence.arithmetic import SPLITS
from harness.evidence.op import Op
from harness.judgement.accounting import has_weights
from harness.judgement.provenance import SEVERAL, SHAPES, SLICES
from harness.judgement.shards import SHARE, Shards
from harness.judgement.strays import Misplaced
from harness.judgement.wiring import reached

_LEFT_TO_ANOTHER = (
    "a step on each shard ran on the device of another shard, which has nothing that it needs; run it in the scope of "
    "the shard's own device"
)
#: The share of the work on the parts from which on a layer with weights is a finding.
_LAYER = 0.02
#: Parts that differ by more than this factor may be sent away to even out the work.
_ALIKE = 2.0
#: The device of each part.
_Deal = tuple[tuple[int, DeviceName], ...]


def left_to_others(shards: Shards) -> Iterator[Misplaced]:
    """The work of such steps."""
    number = len({shards.part(op) for op in shards.worked})
    deals: dict[_Deal, list[Mapping[int, Op]]] = defaultdict(list)
    for step in shards.steps.values():
        deal = _deal(shards, step)
        if len(deal) == number and len(_shares(deal)) > 1 and _shares(deal).keys() <= shards.devices:
            deals[deal].append(step)
    if not deals or _is_grid(shards):
        return
    home = _home(shards, deals)
    places, made = dict(home), _made(shards)
    total = sum(map(shards.weight, shards.worked))
    for deal, steps in deals.items():
        ops = [op for step in steps for op in step.values()]
        least = (_LAYER if any(map(has_weights, ops)) else SHARE) * total
        if deal == home or _shares(deal) != _shares(home) or sum(map(shards.weight, ops)) < least:
            continue
        if not all(_needs_nothing(shards, step, places, made) for step in steps):
            continue
        if not _are_checks(shards, ops, places, made) and not _are_tiles(shards, ops, places):
            yield from (Misplaced(op, places[shards.part(op)], _LEFT_TO_ANOTHER) for op in ops)


def _is_grid(shards: Shards) -> bool:
    """Whether all work on the parts is one line that meets each of them with several others, as blocks of a product."""
    total = sum(map(shards.weight, shards.worked))
    weights: dict[tuple[object, ...], float] = defaultdict(float)
    times: Counter[int] = Counter()
    for op in shards.worked:
        sources = [source for source in shards.provenance.sources[op.name] if _is_cut_out(shards, source)]
        kind = (op.type, shards.trace.places.get(op.name), len(sources))
        weights[kind] += shards.weight(op)
        times[shards.part(op)] += bool(sources) and has_weights(op)
    return max(weights.values()) > (1.0 - SHARE) * total and min(times.values()) > 1


def _deal(shards: Shards, step: Mapping[int, Op]) -> _Deal:
    """Where a step runs on each part."""
    return tuple((part, place) for part, op in sorted(step.items()) if (place := shards.place(op)) is not None)


def _shares(deal: _Deal) -> Counter[DeviceName]:
    """On how many parts each device works."""
    return Counter(place for _, place in deal)


def _home(shards: Shards, deals: Mapping[_Deal, Sequence[Mapping[int, Op]]]) -> _Deal:
    """Where parts are at home: where most of their work is or, if it begins there or is nearly as much, in order.

    The work on what each part is always used with counts too.
    """
    works = {deal: sum(shards.weight(op) for step in steps for op in step.values()) for deal, steps in deals.items()}
    for other, met in shards.companions:
        mine = {their: part for part, their in met.items()}
        for step in other.steps.values():
            deal = tuple(sorted((mine[their], place) for their, place in _deal(other, step) if their in mine))
            if deal in works or len(deal) == len(mine):
                own = (op for op in step.values() if op.name not in shards.family)
                works[deal] = works.get(deal, 0.0) + sum(map(other.weight, own))
    shares = {frozenset(_shares(deal).items()) for deal in deals}
    works = {deal: work for deal, work in works.items() if frozenset(_shares(deal).items()) in shares}
    most, first = max(works.values()), next(iter(deals))

    def rank(deal: _Deal) -> tuple[bool, float]:
        numbers = [shards.order.index(place) for _, place in deal]
        in_turn = [number % len(shards.order) for number in range(len(deal))]
        ordered = numbers in (sorted(numbers), in_turn)
        return ordered and (deal == first or works[deal] * _ALIKE >= most), works[deal]

    return max(works, key=rank)


def _needs_nothing(
    shards: Shards, step: Mapping[int, Op], home: Mapping[int, DeviceName], made: Mapping[str, object]
) -> bool:
    """Whether a step does the same to each part, and nothing that it does so with is away from the part's home."""
    ops = list(step.values())
    if any(shards.handed_on(op) or shards.updates(op) for op in ops):
        return False
    weights = [shards.weight(op) for op in ops]
    if max(weights) > _ALIKE * min(weights):
        return False
    needs = [_needs(shards, op, made) for op in ops]
    alike = set(needs[0]).intersection(*needs)
    return all(
        at == home[shards.part(op)]
        for op, each in zip(ops, needs, strict=True)
        for what, at in each.items()
        if what not in alike
    )


def _needs(shards: Shards, op: Op, made: Mapping[str, object]) -> dict[tuple[object, int], DeviceName | None]:
    """What an op reads beside its part, and beside what this is always used with, and where it is."""
    part, found = shards.part(op), dict[tuple[object, int], DeviceName | None]()
    waiting = [source for source in shards.provenance.sources[op.name] if not _is_of_part(shards, source)]
    seen: set[tuple[str, int]] = set()
    while waiting:
        source = waiting.pop()
        maker = shards.wiring.by_name.get(source[0])
        if source in seen or (maker is not None and maker.role == "constant"):
            continue
        seen.add(source)
        theirs = [other for other, met in shards.companions if _part_of(other, source) == met.get(part, SEVERAL)]
        if not theirs:
            found[made.get(source[0], source[0]), source[1]] = None if maker is None else maker.device
        elif not any(_is_cut_out(other, source) for other in theirs):
            waiting += shards.provenance.sources[source[0]]
    return found


def _is_cut_out(shards: Shards, source: tuple[str, int]) -> bool:
    """Whether a tensor is a part."""
    return not shards.parts.keys().isdisjoint({source, (source[0], None)})


def _part_of(shards: Shards, source: tuple[str, int]) -> int | None:
    """Which part a tensor is, or was made of."""
    return shards.parts.get(source, shards.parts.get((source[0], None), shards.family.get(source[0])))


def _made(shards: Shards) -> dict[str, object]:
    """What each op makes: alike where two ops do the same to the same. Rows that are picked by constants all differ.

    What is read of a variable that the program writes to, if it is used with a single part, is each time another one.
    """
    users: dict[int, set[int]] = defaultdict(set)
    variables, slices = shards.trace.variables, shards.trace.slices
    for op in shards.ops:
        for name, _ in shards.provenance.sources[op.name]:
            for variable in variables.get(name, ()):
                users[variable].add(shards.part(op))
    written = {each for op in shards.wiring.ops if op.role == "update" for each in variables.get(op.name, ())[:1]}
    changed = {variable for variable in written if len(users[variable]) == 1}
    made: dict[str, object] = {}
    fixed: set[str] = set()
    for op in shards.wiring.ops:
        sources = shards.provenance.sources[op.name] if op.type not in SHAPES else ()
        behind = tuple((made.get(name, name), port) for name, port in sources)
        known = hash((op.type, variables.get(op.name, ()), behind, slices.get(op.name)))
        if op.role == "constant" or op.type in SHAPES or (sources and fixed.issuperset(name for name, _ in sources)):
            fixed.add(op.name)
        picked = op.type in SLICES and op.name not in slices and op.name not in fixed
        picked = picked and fixed.issuperset(name for name, _ in sources[1:2])
        apart = picked or not changed.isdisjoint(variables.get(op.name, ()))
        made[op.name] = op.name if apart else known
    return made


def _beside_the_part(shards: Shards, op: Op, made: Mapping[str, object]) -> tuple[object, ...]:
    """What an op reads beside its part."""
    sources = shards.provenance.sources[op.name]
    return tuple((made.get(name, name), port) for name, port in sources if not _is_of_part(shards, (name, port)))


def _is_of_part(shards: Shards, source: tuple[str, int]) -> bool:
    """Whether a tensor is a part, or was made of one."""
    return source[0] in shards.family or _is_cut_out(shards, source)


def _are_checks(shards: Shards, ops: Sequence[Op], home: Mapping[int, DeviceName], made: Mapping[str, object]) -> bool:
    """Whether these ops do again what is done where their part is at home, and only its result says whether alike."""
    behind, after = _around(shards, ops)
    own = [op for op in shards.worked if shards.place(op) == home[shards.part(op)] and op.requested is not None]
    stays = [op for op in own if op.name not in behind | after]
    return not {_reads(shards, op, made) for op in ops}.isdisjoint(_reads(shards, op, made) for op in stays)


def _are_tiles(shards: Shards, ops: Sequence[Op], home: Mapping[int, DeviceName]) -> bool:
    """Whether these ops work on columns, or on pieces of all rows, and exchange nothing with the work at home.

    Where rows and columns are cut, of one tensor or of two that are multiplied, a tile is as much of the one as of the
    other.
    """
    behind, after = _around(shards, ops)
    at_home = {op.name for op in shards.worked if shards.place(op) == home[shards.part(op)]}
    if at_home & (behind | after):
        return False
    by_name = shards.wiring.by_name
    cuts = [by_name[name] for name, _ in shards.parts if name in by_name]
    cuts += [by_name[name] for name in behind]
    cuts += [by_name[name] for op in ops for name, _ in shards.provenance.sources[op.name] if name in by_name]
    return any(_keeps_all_rows(shards, op) for op in cuts if op.type in SPLITS | SLICES)


def _around(shards: Shards, ops: Sequence[Op]) -> tuple[set[str], set[str]]:
    """The ops on the same parts that lead to these ops, and those that these ops lead to, with themselves."""
    by_name = shards.wiring.by_name
    behind = {op.name for op in reached(ops, lambda op: [by_name[name] for name in shards.sources(op.name)])}
    after = {op.name for op in ops}
    for op in shards.ops:
        if not after.isdisjoint(shards.sources(op.name)):
            after.add(op.name)
    return behind, after


def _keeps_all_rows(shards: Shards, cut: Op) -> bool:
    """Whether pieces have as many rows as what they were cut from."""
    shapes = shards.trace.shapes
    given = [
        known[port] for name, port in shards.provenance.sources[cut.name] if port < len(known := shapes.get(name, ()))
    ]
    made = next(iter(shapes.get(cut.name, ())), None)
    return any(made and whole and made[0] == whole[0] for whole in given)


def _reads(shards: Shards, op: Op, made: Mapping[str, object]) -> tuple[object, ...]:
    """The type of an op, and what it reads."""
    sources = (each for each in shards.provenance.sources[op.name] if _is_of_part(shards, each))
    return op.type, _beside_the_part(shards, op, made), *(shards.provenance.base(*each) for each in sources)
