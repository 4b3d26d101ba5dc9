"""How a program splits its inputs: as seen, or, where nothing was seen, as programs usually do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.judgement.diagnosis.leaves import wrong_rows
from harness.judgement.diagnosis.observed import Piece
from harness.judgement.diagnosis.question import Leaf, Question
from harness.judgement.diagnosis.recorded import close
from harness.judgement.diagnosis.wording import listed, rows_and_shards, rows_text

#: As many ways to split are tried.
_MOST = 4
#: As many pieces of an input are sorted.
_MOST_PARTS = 128


@dataclass(frozen=True)
class Layout:
    """One way to split: of each input leaf that is split, the rows of each shard along its axis.

    ``axis``, ``rows`` and ``shards`` are those of the ``main`` leaf. ``seen``: not guessed.
    """

    cuts: dict[int, tuple[int, tuple[tuple[int, ...], ...]]]
    main: int
    rows: int
    place: str | None
    seen: bool

    @property
    def axis(self) -> int:
        """The axis along which the main leaf is split."""
        return self.cuts[self.main][0]

    @property
    def shards(self) -> tuple[tuple[int, ...], ...]:
        """Rows of the main leaf in each shard."""
        return self.cuts[self.main][1]

    @property
    def sizes(self) -> list[int]:
        """How many rows each shard has."""
        return [len(rows) for rows in self.shards]

    @property
    def covered(self) -> list[int]:
        """All rows of the shards, in their order."""
        return [row for rows in self.shards for row in rows]

    def without(self, leaf: int) -> Layout:
        """The same with one leaf of several left whole."""
        cuts = {key: cut for key, cut in self.cuts.items() if key != leaf}
        return replace(self, cuts=cuts, main=self.main if self.main in cuts else next(iter(cuts)))

    def is_of_devices(self, question: Question) -> bool:
        """Whether there is one shard for each device, and not smaller parts, such as micro-batches."""
        return len(question.devices) == len(self.shards)

    def whose(self, question: Question, shards: Sequence[int]) -> str:
        """The rows of some shards, and these, where each is that of a device."""
        rows = sorted(row for number in shards for row in self.shards[number])
        if len(self.shards) > len(question.devices):
            return rows_text(rows)
        return rows_and_shards(rows, shards, self.devices(question, shards))

    def devices(self, question: Question, shards: Sequence[int]) -> str:
        """The devices of some shards, in brackets, where there is one for each shard."""
        devices = list(question.devices)
        of_devices = self.is_of_devices(question)
        return f" ({listed([devices[shard].parsed.short for shard in shards])})" if of_devices else ""


def wrong_shards(question: Question, layout: Layout) -> set[int]:
    """The shards whose rows differ in an output; all of them where no output has the rows of the batch."""
    wrong: set[int] = set()
    for leaf in question.wrong:
        have, want = leaf.found, leaf.expected
        if leaf.part != "outputs" or have is None or want is None or have.shape != want.shape or not want.ndim:
            continue
        if len(want) == layout.rows and not layout.axis:
            alike = np.all(np.reshape(close(have, want), (layout.rows, -1)), axis=1)
            wrong |= {number for number, rows in enumerate(layout.shards) if not np.all(alike[list(rows)])}
    return wrong or set(range(len(layout.shards)))


def shards_that_differ(question: Question) -> Iterator[tuple[Layout, list[int], list[int]]]:
    """Ways to split of which some shards alone have wrong rows, the same in all results: these, and all their rows."""
    for layout in partitions(question):
        each = [_that_differ(leaf, layout) for leaf in question.wrong]
        if not layout.axis and len(layout.sizes) > 1 and each and each[0] and all(other == each[0] for other in each):
            yield layout, each[0], sorted(row for number in each[0] for row in layout.shards[number])


def _that_differ(leaf: Leaf, layout: Layout) -> list[int]:
    """The shards whose rows alone are wrong in an output; empty if none are or all, or others are wrong too."""
    if leaf.part != "outputs" or leaf.found is None or leaf.expected is None:
        return []
    if leaf.found.shape != leaf.expected.shape or leaf.found.shape[:1] != (layout.rows,):
        return []
    wrong = set(wrong_rows(leaf))
    shards = [number for number, rows in enumerate(layout.shards) if wrong.intersection(rows)]
    # The parts that were seen may not be all of the batch.
    known = wrong.issubset(row for number in shards for row in layout.shards[number])
    return shards if known and len(shards) < len(layout.shards) else []


def partitions(question: Question) -> Iterator[Layout]:
    """Ways to split the inputs, those that were seen first."""
    groups: dict[tuple[int, int, int], list[Piece]] = defaultdict(list)
    for piece in question.seen.pieces:
        groups[piece.leaf, piece.axis, piece.source].append(piece)
    arrays = question.input_arrays
    count = len(question.devices)
    seen: list[tuple[int, int, list[Piece]]] = []
    for (leaf, axis, _), pieces in groups.items():
        array = arrays[leaf]
        if array is None or axis >= array.ndim:
            continue
        shards = _distinct(pieces)
        if len(shards) > 1 or (shards and len(shards[0].rows) < array.shape[axis]):
            seen.append((leaf, axis, shards))
            # Micro-batches of the shards, say.
            parts = _finest([piece for piece in question.seen.pieces if (piece.leaf, piece.axis) == (leaf, axis)])
            if len(parts) > len(shards) and sum(len(piece.rows) for piece in parts) == array.shape[axis]:
                seen.append((leaf, axis, parts))
    # One shard for each device is the likeliest; then the fewest.
    seen.sort(key=lambda each: (len(each[2]) != count, -sum(len(piece.rows) for piece in each[2])))
    known: set[object] = set()
    for leaf, axis, shards in seen:
        if len(shards) < 2 or len(known) >= _MOST:
            continue
        array = arrays[leaf]
        assert array is not None
        cuts = {leaf: (axis, tuple(piece.rows for piece in shards))}
        for other, other_axis, pieces in seen:
            if other not in cuts and len(pieces) == len(shards):
                cuts[other] = (other_axis, tuple(piece.rows for piece in pieces))
        key = tuple(sorted(cuts.items()))
        if key not in known:
            known.add(key)
            yield Layout(cuts, leaf, array.shape[axis], shards[0].place, True)
    if not known:
        yield from _usual(question)


def _distinct(pieces: Sequence[Piece]) -> list[Piece]:
    """Each piece once, as a program may cut the same ones again."""
    kept: dict[tuple[int, ...], Piece] = {}
    for piece in pieces:
        kept.setdefault(piece.rows, piece)
    return [piece for rows, piece in kept.items() if rows]


def _finest(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces that no other one is a part of, in the order of their rows; none where some overlap."""
    known = sorted(_distinct(sorted(pieces, key=lambda piece: piece.rows)), key=lambda piece: len(piece.rows))
    kept: list[Piece] = []
    for piece in known[:_MOST_PARTS]:
        within = set(piece.rows)
        if not any(within.issuperset(each.rows) for each in kept):
            kept.append(piece)
    rows = [row for piece in kept for row in piece.rows]
    return sorted(kept, key=lambda piece: piece.rows) if len(set(rows)) == len(rows) else []


def _usual(question: Question) -> Iterator[Layout]:
    rows = [
        (index, array.shape[0])
        for index, array in enumerate(question.input_arrays)
        if array is not None and array.ndim and question.input_names[index].split("[")[0] not in question.whole
    ]
    if not rows:
        return
    main, most = max(rows, key=lambda each: each[1])
    numbers, count = np.arange(most), len(question.devices)
    # What does not divide evenly is shared out, or all of it is in the last shard.
    ways = (np.array_split(numbers, count), np.split(numbers, [most // count * at for at in range(1, count)]))
    for shards in dict.fromkeys(tuple(tuple(part.tolist()) for part in way if len(part)) for way in ways):
        if len(shards) > 1:
            yield Layout({index: (0, shards) for index, size in rows if size == most}, main, most, None, False)
