"""How the op at which a program parts from the reference is unlike the reference's own: what else it reads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import dropwhile, pairwise, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.judgement.diagnosis.leaves import handle_of
from harness.judgement.diagnosis.lockstep import beside_operands
from harness.judgement.diagnosis.lookup import Rows, whole_and_rows
from harness.judgement.diagnosis.neighbours import is_counted_by_gradient
from harness.judgement.diagnosis.recorded import GIVEN, MOVES, TABLES, Step, equal, is_common, named, writes_to
from harness.judgement.diagnosis.replays import run_again
from harness.judgement.diagnosis.wording import attribute_text, constant_text, constant_texts, rows_text
from harness.judgement.state import named_variables
from harness.plural import plural

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: These pair all rows of one input with all rows of another.
_PRODUCTS = ("MatMul", "Einsum", "Conv")
#: These change the shape of what an op makes, and no number; how many parts it joins is another matter on more devices.
_SHAPING = frozenset({"keep_dims", "N"})
#: Ops of whole numbers with more bits.
_WHOLE: dict[str, Callable[[list[Any]], Any]] = {
    "Sum": lambda read: np.sum(read[0], axis=tuple(np.atleast_1d(read[1]))),
    "Prod": lambda read: np.prod(read[0], axis=tuple(np.atleast_1d(read[1]))),
    "AddV2": lambda read: read[0] + read[1],
    "AddN": lambda read: np.sum(read, axis=0),
    "Mul": lambda read: read[0] * read[1],
}


def unlike_reference(search: Search, step: Step, other: Step | None) -> str:
    """What a step reads or does that ``other``, the reference's op in its place, reads or does in another way."""
    if not step.outputs and step.inputs:
        often, usual = (
            sum(each.kind == step.kind and each.inputs[:1] == step.inputs[:1] for each in steps)
            for steps in (search.steps, search.whole)
        )
        there = "once" if usual == 1 else f"{usual} times"
        return f"it runs {often} times, but {there} in the reference" if often > usual > 0 else ""
    if step.kind == "ReadVariableOp" and (name := _unknown_variable(search, step)):
        return f"it reads {name}, which the reference never reads"
    if step.kind in TABLES and (text := _other_values(search, step)):
        return text
    if other is None or other.kind != step.kind:
        return ""
    other = beside_operands(search, step, other)
    for number, mine in step.constants.items():
        theirs = other.constants.get(number)
        if theirs is not None and step.inputs[number] not in search.inputs and not equal(mine, theirs):
            here, there = constant_texts(mine, theirs)
            return f"it reads the constant {here} where the reference reads {there}"
    for number, theirs_read in enumerate(other.inputs[: len(step.inputs)]):
        if text := _reads_another(search, step, number, theirs_read):
            return text
    right = [each.attributes for each in search.groups[id(step)] if not search.is_bad(each)]
    for name, value in step.attributes.items():
        if name in other.attributes and name not in _SHAPING and value != other.attributes[name]:
            if any(each.get(name) == value for each in right) and not _right_as(search, step, other):
                continue
            here, there = (attribute_text(name, each) for each in (value, other.attributes[name]))
            return f"it has {name}={here} where the reference has {name}={there}"
    return ""


def _right_as(search: Search, step: Step, other: Step) -> bool:
    """Whether a step gives what the reference has, if it has the attributes of the reference's op."""
    read = [search.read(step, number) for number in range(len(step.inputs))]
    made = run_again(step, read, other.given) if all(each is not None for each in read) else None
    return search.has(step, made or [], "same", "part")


def _other_values(search: Search, step: Step) -> str:
    """For how many keys a table has other values than the reference's, as far as the keys are those of one shard."""
    mine = step.first
    looked_up = [each.first for each in search.whole if each.kind == step.kind]
    parts = [
        part
        for theirs in looked_up
        for rows in ((), *search.shards[1].values())
        for part in whole_and_rows(theirs, Rows(0, rows, 0))
        if mine is not None and part.shape == mine.shape and not equal(mine, part)
    ]
    found = [(int(np.count_nonzero(mine != part)), part) for part in parts]
    if not found or mine is None:
        return ""
    count, part = min(found, key=lambda each: each[0])
    if 2 * count > mine.size:
        return ""
    at = tuple(index[0] for index in np.nonzero(mine != part))
    return f"its table has different values for {count} of {mine.size} keys, such as {mine[at]} instead of {part[at]}"


def _reads_another(search: Search, step: Step, number: int, theirs: int) -> str:
    """What an op reads where the reference's op reads something else, if both are known, and are not equal."""
    mine = step.inputs[number]
    maker, wanted = search.makers.get(theirs), search.value(theirs)
    if maker is None or wanted is None or wanted.size < 2 or maker.kind in ("Const", "VarHandleOp"):
        return ""
    part_there = _part(search, maker, theirs)
    there = f"where the reference reads {part_there}"
    if (constant := step.constants.get(number)) is not None:
        return f"it reads the constant {constant_text(constant)} {there}" if mine not in search.inputs else ""
    partner, own = search.partner.get(mine), search.value(mine)
    if maker.kind not in GIVEN and (name := _input_of(search, mine)):
        return f"it reads {name} {there}"
    if partner is None or partner.how != "same" or own is None:
        return ""

    def is_own(array: np.ndarray | None) -> bool:
        parts = (part for part in whole_and_rows(array, partner.rows) if part.size == own.size)
        return any(equal(own, part.reshape(own.shape)) for part in parts)

    if is_own(wanted):
        return ""
    if maker.kind in GIVEN:
        read, right = _variable_of(search, own), _variable_of(search, wanted)
        if read and right and read != right:
            return f"it reads {read} where the reference reads {right}"
        old = next((leaf for leaf in search.question.leaves if equal(leaf.start, own)), None)
        if old is None or not equal(old.expected, wanted):
            return ""
        name = old.name.removesuffix(" after the call")
        return f"it reads the value of {name} from before the call; the reference reads the value from after the call"
    if partner.step is None and any(map(is_own, search.upstream)):
        return f"it reads the gradient of the output {there}"
    if partner.step is None or partner.step.kind in GIVEN:
        return ""
    ports = zip(partner.step.outputs, partner.step.results, strict=True)
    name_there = next((name for name, result in ports if is_own(result)), None)
    if name_there is None:
        return ""
    made = _before_moves(search, maker)
    if made is not maker and made is not None and any(map(is_own, map(search.value, _read_before_moves(search, made)))):
        return f"it reads the result of {named(partner.step)}; the reference reads what {named(made)} makes of that"
    read = _part(search, partner.step, name_there)
    return f"its input equals {read} in the reference, but the reference's op reads {part_there}"


def _before_moves(search: Search, step: Step | None) -> Step | None:
    """The step of the reference that made what a step only moves."""
    while step is not None and step.kind in MOVES:
        step = next((search.makers[name] for name in step.inputs if name in search.makers), None)
    return step


def _read_before_moves(search: Search, step: Step) -> set[int]:
    """The tensors that a step of the reference reads, also through steps that only move them."""
    made = (_before_moves(search, search.makers.get(name)) for name in step.inputs)
    return {*step.inputs, *(name for each in made if each is not None for name in each.outputs)}


def _input_of(search: Search, name: int) -> str:
    """The input of the program that a tensor is, or has rows of."""
    partner = search.partner.get(name)
    given = partner is not None and partner.step is None and partner.how == "same"
    while given and name in search.maker and search.maker[name].kind in MOVES:
        name = next((each for each in search.maker[name].inputs if each in search.from_data), 0)
    known = zip(search.question.input_names, search.question.parallel.leaves(), strict=True)
    return next((text for text, leaf in known if getattr(leaf, "_id", None) == name), "")


def _variable_of(search: Search, value: np.ndarray) -> str:
    """The variable that the reference reads, if one alone has this value."""
    reads = {each.inputs[0] for each in search.whole if each.kind == "ReadVariableOp" and equal(each.first, value)}
    question = search.question
    known = named_variables(question.reference.variables, question.snapshot.variables)
    names = [name for variable, name in known if handle_of(variable) in reads]
    return names[0] if len(names) == len(reads) == 1 else ""


def _unknown_variable(search: Search, step: Step) -> str:
    """The variable that a step reads, if the reference reads it nowhere, nor another one of this value."""
    reads = [each for each in search.whole if each.kind == "ReadVariableOp"]
    if step.first is None or any(each.inputs[0] == step.inputs[0] or equal(each.first, step.first) for each in reads):
        return ""
    question = search.question
    known = named_variables(question.parallel.variables, question.snapshot.variables)
    return next((name for variable, name in known if handle_of(variable) == step.inputs[0]), "")


def _part(search: Search, step: Step, name: int) -> str:
    """A result of an op of the reference: which part, if it has several; which one of several on that line."""
    if len(step.outputs) > 1:
        return f"part {step.outputs.index(name)} of {named(step)}"
    alike = [each for each in search.whole if (each.kind, each.place) == (step.kind, step.place)]
    begins = [each.constants[1].tolist() for each in alike if 1 in each.constants]
    if step.kind in ("StridedSlice", "Slice") and len(begins) > 1 and 1 in step.constants:
        begin = step.constants[1].tolist()
        return f"{named(step)} from {begin} on" if begins.count(begin) == 1 else numbered(search, step)
    return numbered(search, step)


def numbered(search: Search, step: Step) -> str:
    """An op of the reference, and which one of several of its type on that line."""
    alike = [each for each in search.whole if (each.kind, each.place) == (step.kind, step.place)]
    return f"{named(step)}, run {alike.index(step) + 1} of {len(alike)}" if len(alike) > 1 else named(step)


def _values_read(search: Search, step: Step) -> list[np.ndarray]:
    """What a step reads; nothing where a value is not known."""
    values = [search.read(step, at) for at in range(len(step.inputs))]
    known = [array for array in values if array is not None]
    return known if len(known) == len(values) else []


def overflowing(search: Search, step: Step) -> str:
    """Whether whole numbers are too large for their dtype: with more bits the same op gives others."""
    made = step.first
    if step.kind not in _WHOLE or made is None or made.dtype.kind not in "iu" or made.dtype.itemsize > 4:
        return ""
    known = [array.astype(np.int64) for array in _values_read(search, step)]
    if not known:
        return ""
    wide = _WHOLE[step.kind](known)
    wide = wide.reshape(made.shape) if wide.size == made.size else made
    over = wide != made
    if not np.any(over) or not np.array_equal(wide.astype(made.dtype), made):
        return ""
    return f"its result is too large for {made.dtype}: {wide[over].flat[0]} becomes {made[over].flat[0]}"


def repeated_write(search: Search) -> Step | None:
    """The first write to a wrong variable that the reference does not make, where what is written is right."""
    for _, handle in search.wrong_variables():
        usual = len(writes_to(handle, search.whole))
        if usual and (more := writes_to(handle, search.steps)[usual:]):
            return more[0]
    return None


def lost_write(search: Search) -> tuple[Step, str] | None:
    """Find the last write that leads to wrong results and overwrites the part of a shard before any op has read it."""
    found = None
    wrong = {handle for _, handle in search.wrong_variables()}
    behind, waiting = set[int](), search.roots()
    while waiting:
        if (name := waiting.pop()) not in behind:
            behind.add(name)
            waiting += search.maker[name].inputs if name in search.maker else ()
    for handle in dict.fromkeys(step.inputs[0] for step in search.steps if step.kind == "AssignVariableOp"):
        if handle not in wrong | behind:
            continue
        using = [step for step in search.steps if handle in step.inputs]
        for before, step in pairwise(using):
            part = before.inputs[-1] if writes_to(handle, [before]) else 0
            if step.kind == "AssignVariableOp" and (search.status.get(part) == "part" or search.is_of_rows(part)):
                what = "the part of another shard" if before.place == step.place else f"what {named(before)} wrote"
                found = step, f"it overwrites {what}, which no op has read"
    return found


def written_by_each_shard(search: Search, step: Step) -> tuple[Step, str] | None:
    """The first write that a step leads to, where there is one for each shard, and the variables that have such."""
    reached, writes = set(step.outputs), []
    for each in search.steps[search.order[id(step)] :]:
        if reached.intersection(each.inputs):
            reached.update(each.outputs)
            writes += [] if each.outputs else [each]
    names, count = [], len(search.partners.sizes)
    for leaf, handle in search.wrong_variables():
        often, usual = (len(writes_to(handle, steps)) for steps in (search.steps, search.whole))
        if usual and often == count * usual:
            names.append(leaf.name.removesuffix(" after the call"))
    if not names or not writes or count < 2:
        return None
    more = f" and {plural(len(names) - 1, 'more variable')}" if len(names) > 1 else ""
    often_text = f"{names[0]}{more} {'are' if more else 'is'} updated {count} times, once with each shard's result"
    return writes[0], f"{often_text}, instead of once with the result of the whole batch"


def stale_read(search: Search, step: Step, other: Step | None) -> tuple[Step, str] | None:
    """The read of a variable before a write, of whose value a step gets parts, where the reference's reads it after."""
    for read in (search.maker[name] for name in search.behind_moves(step)):
        if read.kind == "ReadVariableOp":
            handle, (begin, end) = read.inputs[0], (search.order[id(each)] for each in (read, step))
            between = writes_to(handle, search.steps[begin:end])
            if between and not writes_to(handle, search.steps[:begin]) and _reads_after(search, handle, other):
                write = named(between[0])
                text = f"it reads the variable before {write} writes to it; the reference reads it after that write"
                return read, text
    return None


def _reads_after(search: Search, handle: int, other: Step | None) -> bool:
    """Whether the reference reads a variable again, after it wrote to it, before its step ``other``."""
    before = takewhile(lambda each: each is not other, search.whole)
    after_write = dropwhile(lambda each: not writes_to(handle, [each]), before)
    return any(each.kind == "ReadVariableOp" and each.inputs[0] == handle for each in after_write)


def mispaired(search: Search, step: Step) -> str:
    """Of a step that works row by row: which rows of one input it pairs with other rows of another one."""
    if step.kind in ("MatMul", "BatchMatMulV2"):
        return _other_columns(search, step)
    if step.kind in MOVES or any(word in step.kind for word in _PRODUCTS):
        return ""
    right = search.rows_of_device(step)
    known = [name for name in step.inputs if name in search.rows and not is_counted_by_gradient(search, name)]
    read = [(name, search.rows[name]) for name in known if not _by_chance(search, name)]
    # Those that belong on the device first.
    read.sort(key=lambda each: (each[1].numbers != right, each[1].numbers))
    for (mine, rows), (theirs, others) in pairwise(read):
        alike = (len(rows.numbers), rows.of) == (len(others.numbers), others.of)
        if alike and rows.numbers != others.numbers and not _all_with_all(search, step, mine, theirs):
            order = " in another order" if sorted(rows.numbers) == sorted(others.numbers) else ""
            anew = rows.numbers == right and not order and _for_all(search, step, others)
            return (
                f"it pairs {_rows(search, mine, rows)} with {_rows(search, theirs, others)}"
                f"{order or (', which every shard reads: the offset of the shard is missing' if anew else '')}"
            )
    return ""


def _by_chance(search: Search, name: int) -> bool:
    """Whether rows of two different numbers, as of a mask, are equal to rows of the reference, some of them twice."""
    array, numbers = search.value(name), search.rows[name].numbers
    return array is not None and len(set(numbers)) < len(numbers) and is_common(array)


def _all_with_all(search: Search, step: Step, one: int, other: int) -> bool:
    """Whether two inputs are broadcast along each other's rows, so that all rows of one meet all of the other."""
    arrays = [search.read(step, step.inputs.index(name)) for name in (one, other)]
    # Axes are counted from the last one, as broadcasting does.
    sizes = [dict(enumerate(array.shape[::-1])) if array is not None else {} for array in arrays]
    along = [len(own) - 1 - search.rows[name].axis for own, name in zip(sizes, (one, other), strict=True)]
    return along[0] != along[1] and sizes[0].get(along[1], 1) == 1 == sizes[1].get(along[0], 1)


def _for_all(search: Search, step: Step, rows: Rows) -> bool:
    """Whether the same step reads these rows on all devices."""
    group = search.groups[id(step)]
    return len(group) > 1 and all(
        any(known == rows for name in each.inputs if (known := search.rows.get(name))) for each in group
    )


def _other_columns(search: Search, step: Step) -> str:
    """Of a product of parts of two matrices: which columns of one it multiplies with other rows of the other one."""
    one, other = (search.rows.get(name) for name in step.inputs[:2])
    left, right = map(search.value, step.inputs[:2])
    if one is None or other is None or left is None or right is None:
        return ""
    across = [bool(step.attributes.get(name)) for name in ("transpose_a", "transpose_b")]
    inner = (left.ndim - 2 if across[0] else left.ndim - 1, right.ndim - 1 if across[1] else right.ndim - 2)
    if (one.axis, other.axis) != inner or one.of != other.of or one.numbers == other.numbers:
        return ""
    texts = [_rows(search, name, known) for name, known in zip(step.inputs, (one, other), strict=False)]
    return f"it multiplies {texts[0]} with {texts[1]}"


def _rows(search: Search, name: int, known: Rows) -> str:
    maker = search.maker.get(name)
    if maker is None:
        return f"{rows_text(known.numbers)} of an input"
    # Numbers that do not come from the data begin where they are counted.
    while name not in search.from_data:
        before = next((each for each in maker.inputs if each in search.maker), None)
        made = search.value(before) if before is not None else None
        if before is None or made is None or made.size < len(known.numbers):
            break  # as the key of random numbers
        name, maker = before, search.maker[before]
    return f"{rows_text(known.numbers, 'position' if known.axis else 'row')} of {named(maker)}"
