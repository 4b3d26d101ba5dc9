"""The code blocks of a Markdown file."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block. After its language it may name a file: Python that is that file, or text that the file prints."""

    language: str
    file: str | None
    text: str


def blocks(markdown: str) -> list[Block]:
    """All fenced blocks, in order."""
    return [Block(match[1], match[2], match[3]) for match in _BLOCK.finditer(markdown)]


def scripts(markdown: str) -> dict[str, tuple[str, str]]:
    """The files of which the output is shown: by name, the code and the output."""
    found = blocks(markdown)
    shown = {block.file: block.text for block in found if block.language == "text" and block.file}
    return {
        block.file: (block.text, shown[block.file])
        for block in found
        if block.language == "python" and block.file in shown
    }
