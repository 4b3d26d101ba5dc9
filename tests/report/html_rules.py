"""What holds for every page of the report, read with Python's own parser."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr"}
#: Attributes that make a browser fetch something, or go somewhere.
_FETCHING = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "background", "formaction", "ping"}
_RUNNING = {"script", "iframe", "object", "embed", "base", "form", "link", "img", "foreignobject", "animate", "set"}
_HEADINGS = ("h1", "h2", "h3", "h4")


class Page(HTMLParser):
    """A page that was read: what is wrong with it, and what it holds."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self._ids: list[str] = []
        self._references: list[str] = []
        self._named: list[dict[str, str | None]] = []
        self._style = ""
        self.feed(text)
        self.close()
        self._finish()

    @property
    def text(self) -> str:
        """All that is written, outside of the style sheet."""
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._element(tag, dict(attrs), len(attrs))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._element(tag, dict(attrs), len(attrs))
        if "svg" not in self._open and tag not in _VOID:
            self.problems.append(f"<{tag}/> outside of a picture is no end in HTML")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"</{tag}> in {self._open[-3:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "style":
            self._style += data
            return
        self.texts.append(data)
        for heading in _HEADINGS:
            if heading in self._open:
                level, text = self.headings[-1]
                self.headings[-1] = (level, text + data)

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"a comment: {data[:40]!r}")

    def _element(self, tag: str, attributes: dict[str, str | None], count: int) -> None:
        self.tags.append(tag)
        if tag in _RUNNING:
            self.problems.append(f"<{tag}>")
        if len(attributes) != count:
            self.problems.append(f"<{tag}> has an attribute twice")
        if tag in _HEADINGS:
            self.headings.append((int(tag[1]), ""))
        if tag == "svg":
            self._named.append(attributes)
        for name, value in attributes.items():
            self._attribute(tag, name, value or "")

    def _attribute(self, tag: str, name: str, value: str) -> None:
        if name.startswith("on"):
            self.problems.append(f"<{tag} {name}>")
        if name in _FETCHING:
            if value.startswith("#"):
                self._references.append(value[1:])
            else:
                self.problems.append(f"<{tag} {name}={value!r}> leads out of the page")
        if name in ("aria-labelledby", "aria-describedby"):
            self._references += value.split()
        if name == "id":
            self._ids.append(value)
        self._references += re.findall(r"url\(#([^)]+)\)", value)
        if re.search(r"url\((?!#)", value):
            self.problems.append(f"<{tag} {name}={value!r}> leads out of the page")

    def _finish(self) -> None:
        if self._open:
            self.problems.append(f"not closed: {self._open}")
        if re.search(r"url\(|@import|https?:", self._style):
            self.problems.append("the style sheet leads out of the page")
        twice = {each for each in self._ids if self._ids.count(each) > 1}
        self.problems += [f"id {each!r} is there twice" for each in sorted(twice)]
        self.problems += [f"nothing has the id {each!r}" for each in set(self._references) - set(self._ids)]
        self.problems += [
            "a picture without a name"
            for attributes in self._named
            if attributes.get("role") != "img" or not attributes.get("aria-labelledby")
        ]
        levels = [level for level, _ in self.headings]
        if levels.count(1) != 1 or levels[:1] != [1]:
            self.problems.append("not one h1, first of all headings")
        self.problems += [
            f"h{after} behind h{before}" for before, after in itertools.pairwise(levels) if after > before + 1
        ]
        self.problems += [f"an empty h{level}" for level, text in self.headings if not text.strip()]
