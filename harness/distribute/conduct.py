"""Judges how a training went about it: its rows, its updates, its replicas, and where its variables are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.devices.name import DeviceName
from harness.distribute.batches import Data, digests
from harness.distribute.course import Course
from harness.records import Finding


def judge_rows(courses: Sequence[Course], data: Data, replicas: int) -> list[Finding]:
    """A finding of the kind ``input`` where the rows of a step, over all processes, are not those of its batch."""
    for step in range(min(len(course.rows) for course in courses)):
        parts = [part for course in courses for part in course.rows[step]]
        given = Counter(digest for part in parts for digest in part)
        want = Counter(digests(*data.batch(step)))
        if given == want:
            continue
        lost, more = sum((want - given).values()), sum((given - want).values())
        sizes = ", ".join(str(len(part)) for part in parts)
        same = len(parts) > 1 and parts[0] and all(part == parts[0] for part in parts)
        message = f"{lost} row(s) of the batch were given to no replica, and {more} row(s) were given that are not its"
        if same:
            message = (
                f"all {len(parts)} replicas were given the same {len(parts[0])} rows: each reads the whole data "
                "instead of its part (InputContext.input_pipeline_id says which that is)"
            )
        elif len(parts) > 1 and all(len(part) == sum(want.values()) for part in parts):
            message = (
                f"each of {len(parts)} replicas was given as many rows as the whole batch has, so that a step's batch "
                "grows with the number of devices; divide it by InputContext.num_replicas_in_sync"
            )
        return [
            Finding(
                "input",
                f"{courses[0].loop}, step {step}",
                None,
                f"the {sum(want.values())} rows of the batch, each once, over {replicas} replicas",
                f"{sizes} rows",
                message,
            )
        ]
    return []


def judge_updates(course: Course, single: Course, who: str = "") -> Iterator[Finding]:
    """Findings for an optimizer that counts other updates, or learns at another rate, than on one device."""
    place = f"{course.loop}{who and f', {who}'}"
    for step, (got, want) in enumerate(zip(course.iterations, single.iterations, strict=False)):
        if got != want:
            times = f"{got} updates in {step + 1} step(s)"
            yield Finding(
                "update-count",
                f"{place}, step {step}",
                None,
                f"{want} update(s)",
                f"{got} update(s)",
                f"the optimizer counts {times}: it is applied once for each shard or replica instead of once a step"
                if got > want
                else f"the optimizer counts {times}: an update was left out",
            )
            break
    for step, (rate, wanted) in enumerate(zip(course.rates, single.rates, strict=False)):
        if rate != wanted:
            yield Finding(
                "value",
                f"{place}, learning rate, step {step}",
                None,
                f"{wanted:g}",
                f"{rate:g}",
                f"{who or 'the optimizer'} learns at another rate than one device does",
            )
            break


def judge_sync(course: Course) -> Iterator[Finding]:
    """A finding of the kind ``sync`` for each device whose copies differ: the first of them, and how many there are."""
    by_device: dict[str, list[tuple[int, str, float]]] = {}
    for apart in course.apart:
        by_device.setdefault(apart.device, []).append((apart.step, apart.variable, apart.difference))
    for device, all_apart in by_device.items():
        step, variable, difference = min(all_apart)
        more = "" if len(all_apart) == 1 else f" and {len(all_apart) - 1} more"
        yield Finding(
            "sync",
            f"{course.loop}, {variable}{more}, step {step}",
            device,
            f"the bits of the copy on {course.devices[0]}",
            f"{difference:.3g} away",
            "a replica's copy differs from the first replica's: it missed an update, or was changed by itself",
        )


def judge_workers(courses: Sequence[Course]) -> Iterator[Finding]:
    """A finding of the kind ``sync`` for each process whose variables are not those of the first, bit by bit."""
    first = courses[0]
    for number, course in enumerate(courses[1:], start=1):
        for quantity in ("weight", "slot"):
            apart = [
                (step, name)
                for name, array in course.values[quantity].items()
                if name in first.values[quantity]
                for step in range(min(len(array), len(first.values[quantity][name])))
                if array[step].tobytes() != first.values[quantity][name][step].tobytes()
            ]
            if not apart:
                continue
            step, name = min(apart)
            difference = float(abs(course.values[quantity][name][step] - first.values[quantity][name][step]).max())
            yield Finding(
                "sync",
                f"{course.loop}, {name}, step {step}",
                course.devices[0] if course.devices else None,
                "the bits of worker 0",
                f"{difference:.3g} away",
                f"worker {number} holds another value than worker 0: it missed an update, or made another one",
            )


def judge_homes(course: Course, expected: Sequence[str]) -> Iterator[Finding]:
    """A finding of the kind ``variable-placement`` for each set of wrong places, naming the first variable there."""
    want = [DeviceName.parse(device) for device in expected]
    wrong: dict[tuple[str, ...], list[str]] = {}
    for name, places in course.homes.items():
        if not _same([DeviceName.parse(place) for place in places], want):
            wrong.setdefault(places, []).append(name)
    for places, names in wrong.items():
        more = "" if len(names) == 1 else f" and {len(names) - 1} more"
        yield Finding(
            "variable-placement",
            f"{names[0]}{more} ({course.loop})",
            places[0] if places else None,
            ", ".join(expected),
            ", ".join(places) or "nowhere",
            "a variable or slot is not where the strategy keeps its variables: it was made outside of its scope",
        )


def _same(places: Sequence[DeviceName], want: Sequence[DeviceName]) -> bool:
    return len(places) == len(want) and all(
        one.kind == other.kind and one.index == other.index for one, other in zip(places, want, strict=True)
    )
