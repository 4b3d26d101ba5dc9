"""MkDocs hook: fills in the tables that are made from the code, so that they cannot go stale.

A line ``<!-- generated: NAME -->`` of a page is replaced by what the function of that name in ``TABLES`` returns.
Importing the harness loads no TensorFlow, so the site can be built without it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_ROLE = re.compile(r":(?:py:)?(?:func|class|mod|meth|data|attr|exc):(?=<code>)")
_MARKER = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each marker of a page by its table."""
    # Not at the top: MkDocs restores the path after it has loaded a hook.
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return _MARKER.sub(lambda match: TABLES[match[1]](), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Drop the roles of reStructuredText that docstrings use."""
    return _ROLE.sub("", html)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines.append(["---"] * len(lines[0]))
    # Python-Markdown takes a bar in code as it is.
    lines += [
        [re.sub(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", r"\\|", cell).replace("\n", " ") for cell in row] for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def finding_kinds() -> str:
    """Describe every kind of finding, after a list of them."""
    from harness.finding_kinds import KINDS

    kinds = KINDS.values()
    rows = ((f"[{kind.code}](#{kind.code.lower()}-{kind.name})", f"`{kind.name}`", kind.meaning) for kind in kinds)
    parts = [_table(("code", "kind", "what is wrong"), rows)]
    for kind in kinds:
        texts = {"Example": kind.example, "Usual causes": kind.causes, "What to do": kind.remedy}
        parts.append(f"### {kind.code} {kind.name}\n\n{kind.meaning[0].upper()}{kind.meaning[1:]}.")
        parts.append("\n".join(f"- {title}: {text}" for title, text in texts.items()))
    return "\n\n".join(parts)


def causes() -> str:
    """List the causes of results that differ, by their codes."""
    from harness.judgement.diagnosis.looks import LOOKS
    from harness.judgement.diagnosis.rules.table import RULES

    every: list[Any] = [*RULES, *LOOKS]
    rows = (
        (f"<a id='{each.code.lower()}'></a>{each.code}", f"`{each.name}`", each.meaning)
        for each in sorted(every, key=lambda each: each.code)
    )
    return _table(("code", "cause", "what holds"), rows)


def checks() -> str:
    """List what ``harness validate`` runs."""
    from harness.checks.registry import SUITE

    rows = (
        (f"`{each.id}`", str(each.level), f"{each.minimum_devices} or more", f"{each.typical_s:g} s", each.proves)
        for each in SUITE.checks
    )
    return _table(("check", "from level", "devices", "takes", "what a PASS proves"), rows)


def planted_faults() -> str:
    """List what ``harness selftest`` plants."""
    from harness.faults.catalogue import CATALOGUE

    rows = ((f"`{fault.name}`", fault.group, fault.title, fault.source) for fault in CATALOGUE.values())
    return _table(("fault", "group", "what is wrong", "seen in"), rows)


def commands() -> dict[str, Any]:
    """Give the commands of ``harness`` by name, such as ``fleet report``.

    Typer brings its own copy of Click, hence no type of Click's.
    """
    from typer.main import get_command

    from harness.cli.app import app

    group: Any = get_command(app)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        own = getattr(command, "commands", None)
        found |= {name: command} if own is None else {f"{name} {each}": own[each] for each in own}
    # What only the harness itself runs is of no use to people.
    return {name: command for name, command in found.items() if not command.hidden}


def command_line() -> str:
    """Describe every command with its options."""
    parts = []
    for name, command in commands().items():
        context = command.context_class(command, info_name=f"harness {name}")
        usage = " ".join([f"harness {name}", *command.collect_usage_pieces(context)])
        parts += [f"### harness {name}", f"`{usage}`", inspect.cleandoc(command.help or "").replace("<", "&lt;")]
        records = [each.get_help_record(context) for each in command.params if each.param_type_name == "option"]
        rows = [(f"`{written}`", meaning.replace("<", "&lt;")) for written, meaning in filter(None, records)]
        if rows:
            parts.append(_table(("option", "meaning"), rows))
    return "\n\n".join(parts)


class _OptionList:
    """Takes the calls by which the plug-in adds its options to pytest's parser."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def getgroup(self, *_: str) -> _OptionList:
        return self

    def addoption(self, name: str, *, metavar: str | None = None, **kwargs: Any) -> None:
        self.rows.append((f"`{name}{f'={metavar}' if metavar else ''}`", kwargs["help"].replace("%%", "%")))

    def addini(self, name: str, text: str, **_: Any) -> None:
        self.rows.append((f"ini key `{name}`", text))


def plugin_options() -> str:
    """List the options and ini keys that the plug-in adds to pytest."""
    from harness.pytest_plugin import plugin

    options = _OptionList()
    plugin.pytest_addoption(options)  # type: ignore[arg-type]
    return _table(("option", "meaning"), options.rows)


def device_specs() -> str:
    """List the forms of a device spec."""
    from harness.devices.spec import spec_forms

    return _table(("spec", "devices"), ((f"`{form.written}`", form.meaning) for form in spec_forms()))


def device_profiles() -> str:
    """List the shipped device profiles."""
    from harness.devices.profile import shipped_profiles

    rows = ((f"`@{profile.name}`", f"`{profile.spec}`", profile.description) for profile in shipped_profiles())
    return _table(("profile", "spec", "for"), rows)


def described_machine() -> str:
    """List the keys of a file that describes a machine, and the kinds of its faults."""
    from harness.devices.described.description import FAULT_TABLES, CardsTable, CardTable, Description, SoftwareTable
    from harness.devices.described.models import MODELS

    def keys(model: Any) -> dict[str, tuple[str, str]]:
        """Return the default and what is accepted, by key."""
        return {
            name: ("required" if field.is_required() else _toml(field.get_default(call_default_factory=True)), each)
            for name, field in model.model_fields.items()
            if (each := field.description)
        }

    head = ("key", "default", "accepted")
    parts = [f"Without `compute_capability`, a model is one of {', '.join(f'`{name}`' for name in MODELS)}."]
    tables = {"The file": Description, "cards": CardsTable, "card": CardTable, "software": SoftwareTable}
    for title, table in tables.items():
        rows = [(f"`{name}`", default, each) for name, (default, each) in keys(table).items()]
        parts += [f"### {title}", _table(head, rows)]
    rows = []
    for fault in FAULT_TABLES:
        # Those of all faults are explained once, on the page.
        own = ((name, each) for name, each in keys(fault).items() if name not in ("card", "pair", "cards"))
        texts = (f"`{name}`: {each}{f' ({default})' if default else ''}" for name, (default, each) in own)
        kind = fault.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]
        rows.append((f"`{kind}`", inspect.getdoc(fault) or "", "; ".join(texts)))
    return "\n\n".join([*parts, "### fault", _table(("kind", "what happens", "keys"), rows)])


def _toml(value: object) -> str:
    """Return a default as a file would have it; a table or ``None`` as nothing."""
    return "" if value is None or not isinstance(value, bool | int | float | str | list) else f"`{json.dumps(value)}`"


def run_json() -> str:
    """Describe the records of ``run.json`` from its schema."""
    from harness.report.run_schema import run_schema

    schema = json.loads(run_schema())
    parts = [_record("run.json", schema)]
    parts += [_record(name, record) for name, record in schema["$defs"].items()]
    return "\n\n".join(parts)


def _record(name: str, record: dict[str, Any]) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", record.get("description", "")).replace("``", "`")
    heading = f"### {name}\n\n{inspect.cleandoc(text)}"
    if "enum" in record:
        return f"{heading}\n\nOne of {', '.join(f'`{value}`' for value in record['enum'])}."
    required = record.get("required", ())
    rows = (
        (f"`{field}`", _type(form), "yes" if field in required else "")
        for field, form in record.get("properties", {}).items()
    )
    return f"{heading}\n\n{_table(('field', 'type', 'required'), rows)}"


def _type(form: dict[str, Any]) -> str:
    if "$ref" in form:
        name = form["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in form:
        return " or ".join(dict.fromkeys(_type(each) for each in form["anyOf"]))
    if "enum" in form:
        return ", ".join(f'`"{value}"`' for value in form["enum"])
    if form.get("type") == "array":
        return f"list of {_type(form['items'])}" if form.get("items") else "list"
    return str(form.get("type", "any value"))


def api() -> str:
    """Name every public object for mkdocstrings, functions first."""
    import harness

    homes = {name: f"{home}.{name}" for name, home in harness._HOME.items()}
    modules = sorted(name for name, home in harness._HOME.items() if home == "harness")
    functions = sorted(name for name in homes if name[0].islower() and name not in modules)
    errors = sorted(name for name, home in homes.items() if home.startswith("harness.errors."))
    others = sorted(set(homes) - {*functions, *errors, *modules})
    sections = []
    for title, names in (("Functions", functions), ("Classes", others), ("Errors", errors), ("Modules", modules)):
        objects = [f"::: {homes[name]}\n    options:\n      heading: harness.{name}{_members(name)}" for name in names]
        sections.append("\n\n".join([f"## {title}", *objects]))
    return "\n\n".join(sections)


def _members(name: str) -> str:
    """Limit what is shown of the strategies to those that a user calls."""
    return f"\n      members: [{', '.join(_STRATEGIES)}]" if name == "strategies" else ""


_STRATEGIES = ("programs", "assert_program", "device_sets", "batches", "exact_arrays", "training_setups")

#: The tables by the name that a page's marker gives.
TABLES: dict[str, Callable[[], str]] = {
    "finding-kinds": finding_kinds,
    "causes": causes,
    "checks": checks,
    "planted-faults": planted_faults,
    "command-line": command_line,
    "plugin-options": plugin_options,
    "device-specs": device_specs,
    "device-profiles": device_profiles,
    "described-machine": described_machine,
    "run-json": run_json,
    "api": api,
}
