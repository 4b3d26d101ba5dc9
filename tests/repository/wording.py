"""Finds phrases that readers have to decipher, and names the plain term: ``python tests/repository/wording.py``.

The list is a glossary of what this project once wrote. It is checked in what people read: the
README, the pages, and the messages, help texts and docstrings of the package. Output that a page shows is left out, as
the program has to change first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("*.md", "docs/**/*.md")
PACKAGE = ("harness/**/*.py", "harness/**/*.j2")

_OUTPUT = re.compile(r"^```(?:text|console).*?^```$", re.MULTILINE | re.DOTALL)

#: Each pattern, and what to write instead. A space in a pattern stands for any space, line breaks too.
PHRASES = {
    r"\b(?:is|are|was|were|be) (?:not |all )?(?:to be|could be) had\b|\b(?:to|can|could|cannot) be had\b": "available",
    r"\b(?:is|are|was|were|be) not there\b|\bthat (?:is|are) there\b|\bbecause (?:none|no \w+) is here\b": "available, "
    "unavailable, missing",
    r"\bwhere (?:it|there) is (?:not|none) there\b": "missing",
    r"\b(?:is|are|was|were) (?:not )?told\b|\btold of\b|\btells of\b": "reported",
    r"\b(?:is|are|was) (?:not )?said\b|\bit is said\b|\bbefore it is said\b": "reported",
    r"\btook [\w:@-]+, because\b": "selected cpu:4: no GPU found",
    r"\bequal to one device\b": "matches the single-device run",
    r"\b(?:takes?|took|taking|left|leaves?) the (?:same )?course\b|\bcourse of one device\b": "matches or "
    "diverged from the single-device run",
    r"\brun a second time before\b": "rerun before being reported",
    r"\bx measured effect of\b|\beffect of one unit in the last place\b": "tolerance 3e-6 (rounding)",
    r"\bmeasured and not judged\b|\bfor there is no\b": "not judged: no profile",
    r"\bknown failure that is none\b|\btake it out of the file\b": "known failure no longer occurs; remove it",
    r"\bnobody can (?:tell|say)\b": "unknown",
    r"\bis the card's\b|\bgoes with the card\b": "if the slowness moves with the card, the card is faulty",
    r"\bdescribed and no hardware\b|: no hardware\b": "a described machine, not real hardware",
    r"\ball ended well\b": "all succeeded",
    r"\beach op in its place\b": "each op on its device",
    r"\bthe ups and downs\b": "variation",
    r"\b(?:of|among) its like\b|\bthan its like\b|\bits own like\b": "GPUs of the same model",
    r"\bin silence\b": "silently",
    r"\bcries wolf\b": "raises a false alarm",
    r"\bproves? nothing of\b": "says nothing about",
    r"\bof its own form\b": "valid",
}


def findings(root: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    """Each phrase that a file contains: where, what, and what to write instead."""
    rules = [(re.compile(pattern.replace(" ", r"\s+")), plain) for pattern, plain in PHRASES.items()]
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        text = _OUTPUT.sub(lambda match: "\n" * match[0].count("\n"), path.read_text(encoding="utf-8"))
        # A string or a comment may go on in the next line.
        joined = re.sub(r'["\'] *\n *f?["\']|(?<=\w)\n *#:? (?=\w)', "\n", text)
        for rule, plain in rules:
            for match in rule.finditer(joined):
                line = joined.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}: {' '.join(match[0].split())!r}; write: {plain}"


def main() -> int:
    """Print what was found, and say with the exit code whether anything was."""
    found = list(findings(ROOT, tuple(sys.argv[1:]) or (*PAGES, *PACKAGE)))
    print("\n".join(found) or "no phrase of the glossary")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
