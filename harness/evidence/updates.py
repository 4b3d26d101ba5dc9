"""Tells the arithmetic of updates, such as an optimizer's, from forward work."""

from __future__ import annotations

from collections import Counter, defaultdict

from harness.evidence.arithmetic import sources_of
from harness.evidence.op import Evidence, Op

#: What arithmetic is handed on by: its results are those of what is read.
_HANDED_ON = ("forward", "control", "constant", "collective")


def update_arithmetic(evidence: Evidence) -> frozenset[str]:
    """The names of the ops that only serve updates.

    All that reads their results is an update, or serves updates alone too. They work on gradients and on variables,
    not on what the program was given, and no gradient is taken of them. A program without gradients has none.
    """
    if not any(op.role == "gradient" for op in evidence.ops):
        return frozenset()
    by_name = {op.name: op for op in evidence.ops}
    of_the_model = _of_the_model(evidence)
    unsettled = Counter(name for op in evidence.ops for name, _ in sources_of(op))
    # What TensorFlow left out because nothing reads it serves nothing.
    unused = [op for op in evidence.ops if op.device is None and not unsettled[op.name] and op.role != "gradient"]
    waiting = [op for op in evidence.ops if op.role == "update"] + unused
    found = set()
    while waiting:
        for name, _ in sources_of(waiting.pop()):
            unsettled[name] -= 1
            op = by_name.get(name)
            if op is not None and not unsettled[name] and op.role in _HANDED_ON and name not in of_the_model:
                found.add(name)
                waiting.append(op)
    return frozenset(name for name in found if by_name[name].role == "forward")


def _of_the_model(evidence: Evidence) -> set[str]:
    """The ops that a gradient is taken of, or that read an argument or data; and all behind them but backward ops."""
    readers: dict[str, list[Op]] = defaultdict(list)
    for op in evidence.ops:
        for name, _ in sources_of(op):
            readers[name].append(op)
    waiting = [op.forward for op in evidence.ops if op.forward is not None]
    waiting += [
        op.name
        for op in evidence.ops
        if op.role == "data" or (op.role != "gradient" and any(name.startswith("argument[") for name in op.inputs))
    ]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [op.name for op in readers[name] if op.role not in ("gradient", "update")]
    return seen
