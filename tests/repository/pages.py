"""The code blocks of a Markdown page: which are files, which are commands, and what they print.

- ``python NAME`` or ``python title="NAME"`` is a file, as are ``toml``, ``yaml`` and ``json`` blocks with a name;
- ``text NAME`` or ``text title="output of NAME"`` is what that Python file prints when it is run as a script;
- ``console`` is a transcript: each line ``$ COMMAND`` is run in the folder of the page's files; its output follows;
- ``sh`` is a recipe for another machine: its commands and options must exist, but they are not run.

``python tests/repository/pages.py`` runs every script and writes what it prints into its page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from repository import ROOT, read

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)"| (\S+))?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_OUTPUT = "output of "
_DEVICES = re.compile(r'harness\.configure\("([^"]+)"\)')
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_LIMIT_S = 1200
_PYTEST = "pytest -p harness.pytest_plugin.plugin -p pytest_benchmark.plugin -p no:cacheprovider"
_PROGRAMS = {"python": [], "harness": ["-m", "harness"], "pytest": ["-m", *_PYTEST.split()]}
#: Pages whose commands measure speed: ``tests/benchmarks`` runs them, alone on the machine.
SPEED_PAGES = ("docs/guides/advise.md", "docs/guides/fit.md", "docs/guides/profiling.md", "docs/guides/speedups.md")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    language: str
    title: str
    text: str

    @property
    def file(self) -> str:
        """The file that the block is, or whose output it is; empty where it has no title."""
        return self.title.removeprefix(_OUTPUT)


@dataclass(frozen=True)
class Script:
    """A Python file that is run as it stands, and what its page says that it prints."""

    page: str
    name: str
    code: str
    shown: str

    @property
    def group(self) -> str:
        """Scripts of one group can share a process: TensorFlow fixes its devices once per process."""
        found = _DEVICES.search(self.code)
        return found[1] if found else self.name


@dataclass(frozen=True)
class Command:
    """One command of a transcript."""

    command: str
    shown: str


def pages() -> list[str]:
    """The README and every page of the site."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def blocks(page: str, markdown: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [Block(page, match[1], match[2] or match[3] or "", match[4]) for match in _BLOCK.finditer(markdown)]


def files(found: Iterable[Block]) -> dict[str, str]:
    """The files of a page, by name."""
    return {block.file: block.text for block in found if block.file and block.language != "text"}


def scripts(found: Iterable[Block]) -> list[Script]:
    """The Python files of which the output is shown."""
    found = list(found)
    shown = {block.file: block.text for block in found if block.language == "text" and block.file}
    return [
        Script(block.page, block.file, block.text, shown[block.file])
        for block in found
        if block.language == "python" and block.file in shown
    ]


def commands(block: Block) -> list[Command]:
    """The commands of a transcript, each with the output that is shown below it."""
    parts = re.split(r"^\$ (.*)\n", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    return [Command(command, shown) for command, shown in zip(parts[::2], parts[1::2], strict=True)]


def recipe_lines(block: Block) -> Iterator[str]:
    """The command lines of a recipe, without comments; a line that ends in a backslash goes on."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if command := re.sub(r"(^|\s)#.*", "", line).strip():
            yield command


def agree(shown: str, printed: str) -> bool:
    """Whether a command printed what its page shows: numbers and spaces aside, with any text for each ``…``."""
    pattern = re.sub(r"(?:\\ )?…(?:\\ )?", ".*?", re.escape(_plain(shown)))
    return re.fullmatch(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    text = re.sub(r"[─━═=-]{3,}", "---", text)
    return re.sub(r"\s+", " ", _NUMBER.sub("0", text)).strip()


def environment(folder: Path) -> dict[str, str]:
    """The environment of a user at a terminal, with ``harness`` and ``pytest`` as commands."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, arguments in _PROGRAMS.items():
        line = f'exec "{sys.executable}" {shlex.join(arguments)} "$@"'
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    ours = ("HARNESS", "PYTEST", "_HARNESS", "FAKE_")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "COLUMNS": "110",
    }


def run_scripts(group: list[Script], folder: Path) -> dict[Script, str]:
    """What each script of a group prints. Several share a process, each in a folder of its own."""
    places = []
    for number, script in enumerate(group):
        place = folder / str(number) / script.name
        place.parent.mkdir(parents=True)
        place.write_text(script.code, encoding="utf-8")
        places.append(place)
    command = [sys.executable, places[0].name] if len(group) == 1 else [sys.executable, __file__, *map(str, places)]
    done = subprocess.run(
        command,
        cwd=places[0].parent,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{', '.join(script.name for script in group)}:\n{done.stdout}\n{done.stderr}"
    printed = [done.stdout] if len(group) == 1 else json.loads(done.stdout.splitlines()[-1])
    return dict(zip(group, printed, strict=True))


def run_command(command: str, folder: Path) -> str:
    """What a command prints, standard output and standard error together."""
    done = subprocess.run(
        _python_command(command) or ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    return done.stdout


def _python_command(command: str) -> list[str] | None:
    """What the programs of :func:`environment` do for a command that needs no shell."""
    program, *arguments = shlex.split(command)
    plain = not re.search(r"[|&;<>$`*?~]", command)
    return [sys.executable, *_PROGRAMS[program], *arguments] if plain and program in _PROGRAMS else None


def check_transcripts(page: str, folder: Path) -> None:
    """Run the commands of a page in a folder with its files; each has to print what the page shows.

    Raises:
        AssertionError: a command prints something else.
    """
    own = blocks(page, read(page))
    for name, text in files(own).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for block in own:
        for command in commands(block) if block.language == "console" else ():
            printed = run_command(command.command, folder)
            assert agree(command.shown, printed), f"{page}: $ {command.command}\n{printed}"


def pages_with_transcripts() -> list[str]:
    """The pages that show commands with their output."""
    return [page for page in pages() if any(block.language == "console" for block in blocks(page, read(page)))]


def groups(found: Iterable[Script]) -> dict[str, list[Script]]:
    """Scripts by the process that they can share."""
    made: dict[str, list[Script]] = {}
    for script in found:
        made.setdefault(script.group, []).append(script)
    return made


def all_scripts() -> list[Script]:
    """The scripts of all pages."""
    return [script for page in pages() for script in scripts(blocks(page, read(page)))]


def _run_here(places: list[str]) -> None:
    import contextlib
    import io

    printed = []
    for place in places:
        os.chdir(Path(place).parent)
        code = compile(Path(place).read_text(encoding="utf-8"), place, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, {"__name__": "__main__", "__file__": place})
        printed.append(out.getvalue())
    print(json.dumps(printed))


def _update_pages() -> None:
    import tempfile

    for group in groups(all_scripts()).values():
        with tempfile.TemporaryDirectory() as folder:
            for script, printed in run_scripts(group, Path(folder)).items():
                text = read(script.page)
                lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
                head = re.escape(script.name)
                block = re.compile(rf'(^```text (?:title="{_OUTPUT})?{head}"?\n)(?:.*\n)*?(```\n)', re.MULTILINE)
                changed = block.sub(r"\g<1>" + lines.replace("\\", r"\\") + r"\g<2>", text)
                if changed != text:
                    print(f"{script.page}: {script.name}")
                    (ROOT / script.page).write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    _run_here(sys.argv[1:]) if sys.argv[1:] else _update_pages()
