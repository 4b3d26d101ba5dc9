"""Makes users' texts safe to show: invisible characters, and those that change direction, become escapes."""

from __future__ import annotations

import re

from harness.devices.name import DeviceName
from harness.errors import InvalidDeviceName

#: Control characters but tab and newline, lone surrogates, what XML does not know, and the characters that change the
#: direction of the text behind them (Unicode's bidirectional controls, UAX 9), with which a name could hide another.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Replace every invisible character by its escape, such as ``\\x07`` or ``\\u202e``."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Make ``text`` printable, on one line."""
    return " ".join(printable(text).split())


def shortened(text: str, most: int) -> str:
    """Shorten ``text`` to one line of at most ``most`` characters."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def ending(text: str, most: int) -> str:
    """Shorten ``text`` to the end of one line, of at most ``most`` characters: paths and layers end with what tells."""
    line = one_line(text)
    return line if len(line) <= most else f"…{line[1 - most :]}"


def device_label(name: str | None) -> str:
    """Shorten a full device name, such as to ``GPU:1``; other texts stay unchanged."""
    if name is None:
        return ""
    try:
        return DeviceName.parse(name).short if name.startswith("/") else name
    except InvalidDeviceName:
        return name
