"""Sizes of memory: parsed from texts such as ``16GB`` and ``16 GiB``, compared with them, and written."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from harness.speed.memory.errors import InvalidSize

#: Bytes in each unit, by its name in lower case: powers of 1000 (kB) and of 1024 (KiB).
UNITS = {"b": 1} | {
    f"{prefix}{binary}b": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for binary, base in (("", 1000), ("i", 1024))
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)\s*", re.IGNORECASE)
#: A size as users give it: bytes, or a text with a unit.
Given: TypeAlias = "int | str"


def parse_size(given: object) -> int:
    """Return the bytes that ``given`` means: an int of bytes, or a text such as ``"16GB"`` or ``"1.5 GiB"``.

    kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB powers of 1024. Upper and lower case are the same.

    Raises:
        InvalidSize: it is anything else, or negative.
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return int(given)
    match = _SIZE.fullmatch(given) if isinstance(given, str) else None
    unit = UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidSize(given)
    return math.floor(float(match[1]) * int(unit))


def size_text(size_bytes: float) -> str:
    """Write bytes with a unit and at most four digits, such as ``81.31 MiB``."""
    sign, left = ("-" if size_bytes < 0 else ""), abs(float(size_bytes))
    if left < 1024:
        return f"{sign}{left:.4g} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        left /= 1024
        if left < 1024 or unit == "TiB":
            break
    return f"{sign}{left:.4g} {unit}"


class Size(int):
    """Bytes that compare with texts: ``size < "2 GiB"``. ``source`` says how they were measured.

    Raises:
        InvalidSize: when compared with a text that is no size.
    """

    source: str

    def __new__(cls, size_bytes: int, source: str = "") -> Size:
        """Make a size of ``size_bytes``."""
        made = super().__new__(cls, size_bytes)
        made.source = source
        return made

    def __lt__(self, other: Given) -> bool:
        """Whether it is smaller than a size or text."""
        return int(self) < parse_size(other)

    def __le__(self, other: Given) -> bool:
        """Whether it is at most as large as a size or text."""
        return int(self) <= parse_size(other)

    def __gt__(self, other: Given) -> bool:
        """Whether it is larger than a size or text."""
        return int(self) > parse_size(other)

    def __ge__(self, other: Given) -> bool:
        """Whether it is at least as large as a size or text."""
        return int(self) >= parse_size(other)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same number of bytes as a size or text."""
        return int(self) == (parse_size(other) if isinstance(other, str) else other)

    __hash__ = int.__hash__

    def __str__(self) -> str:
        """Write it with a unit."""
        return size_text(int(self))

    __repr__ = __str__
