"""The smallest case that still fails in the same way: the fewest rows, the fewest devices, one output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from harness.devices.device import Devices
from harness.errors import UsageError
from harness.judgement.fields import in_fields
from harness.judgement.runs import axis_and_whole, rows_of
from harness.judgement.values import names_of
from harness.judgement.verification import Verification
from harness.lazy import tf
from harness.parallel.data import DataParallel, make_parallel
from harness.plural import plural
from harness.records import Verdict

#: So many rows are tried one by one; then twice as many each time, and one row more, since faults of a split depend on
#: whether the rows can be divided. So what is tried grows with the logarithm of the rows.
_ONE_BY_ONE = 8

#: Makes the program for other devices.
Maker = Callable[[Devices], Callable[..., Any]]


@dataclass(frozen=True)
class Programs:
    """What is verified: both programs, their inputs, and the devices."""

    parallel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Mapping[str, Any]
    devices: Devices


def known_maker(shrink: Any, parallel: Callable[..., Any]) -> Maker | None:
    """What makes the program for fewer devices, where that is known.

    Raise UsageError if ``shrink`` is neither a truth value nor a function.
    """
    if callable(shrink):
        return shrink  # type: ignore[no-any-return]
    if not isinstance(shrink, bool):
        raise UsageError(
            f"shrink={shrink!r}; accepted: True, False, or a function that takes devices and returns a program"
        )
    if not isinstance(parallel, DataParallel):
        return None
    return lambda devices: make_parallel(
        parallel.fn,
        devices,
        axis=parallel.axis,
        broadcast=parallel.broadcast,
        colocate_gradients=parallel.colocate_gradients,
    )


def smallest(
    found: Verification, programs: Programs, maker: Maker | None, judge: Callable[[Programs, str], Verification]
) -> str:
    """What is left of the case where it fails alike with less; empty where nothing can be taken away.

    ``judge`` verifies programs in one mode. A smaller case fails alike if its first failure is of the same kind.
    """
    first = next(finding for finding in found.findings if finding.severity is Verdict.FAIL)
    mode = first.mode.split(", ")[0]

    said: dict[str, str] = {}
    total = rows_of(programs.parallel, programs.inputs) or 0

    def less(name: str, smaller: _Cases) -> bool:
        nonlocal programs
        for text, tried in smaller:
            failures = [each for each in judge(tried, mode).findings if each.severity is Verdict.FAIL]
            if failures and failures[0].kind == first.kind:
                programs, said[name] = tried, text
                return True
        return False

    less("rows", _rows(programs, total))
    if less("devices", _devices(programs, maker)):
        less("rows", _rows(programs, total))  # fewer devices need fewer rows
    less("outputs", _outputs(programs, found, mode))
    return ", ".join(said.values())


#: Smaller cases, each with what it has.
_Cases = Iterator[tuple[str, Programs]]


def _outputs(case: Programs, found: Verification, mode: str) -> _Cases:
    names = [each.where for each in found.comparisons if each.mode == mode]
    outputs = [name for name in names if name.startswith("output")]
    wrong = [name for name in outputs if any(name in line for each in found.findings for line in each.follows)]
    for name in wrong if len(outputs) > 1 else ():
        alone = replace(case, parallel=_only(case.parallel, name), reference=_only(case.reference, name))
        yield f"{name} alone", alone


def _only(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(fn, updated=())
    def one(**inputs: Any) -> Any:
        outputs = in_fields(fn(**inputs))
        return tf.nest.flatten(outputs)[names_of(outputs).index(name)]

    return one


def _rows(case: Programs, total: int) -> _Cases:
    rows = rows_of(case.parallel, case.inputs) or 0
    doubled = (more for power in range(rows.bit_length()) for more in (2**power, 2**power + 1) if more > _ONE_BY_ONE)
    for count in (each for each in (*range(1, _ONE_BY_ONE + 1), *doubled) if each < rows):
        yield f"{count} of {plural(total, 'row')}", replace(case, inputs=_first(case, rows, count))


def _first(programs: Programs, rows: int, count: int) -> dict[str, Any]:
    axis, whole = axis_and_whole(programs.parallel)

    def cut(leaf: Any) -> Any:
        if not tf.is_tensor(leaf) or not leaf.shape.rank or leaf.shape.rank <= axis or leaf.shape[axis] != rows:
            return leaf
        return tf.gather(leaf, tf.range(count), axis=axis)

    return {
        name: value if name in whole else tf.nest.map_structure(cut, value) for name, value in programs.inputs.items()
    }


def _devices(case: Programs, maker: Maker | None) -> _Cases:
    total = len(case.devices)
    if maker is not None:
        for count in range(1, total):
            devices = case.devices[:count]
            yield f"{count} of {plural(total, 'device')}", replace(case, parallel=maker(devices), devices=devices)
