"""The schema of run.json: published, and true of what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sample_records as samples

from harness.records import RUN_SCHEMA_VERSION, Figure, RunRecord
from harness.report.run_schema import run_schema
from harness.report.storage import save_run

_ROOT = Path(__file__).resolve().parents[2]
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def violations(value: Any, schema: dict[str, Any], whole: dict[str, Any], where: str = "run") -> list[str]:
    """What of ``value`` the schema does not allow: the words of JSON Schema that Pydantic uses for the records."""
    if "$ref" in schema:
        return violations(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, where)
    if "anyOf" in schema:
        tried = [violations(value, each, whole, where) for each in schema["anyOf"]]
        return [] if any(not each for each in tried) else [f"{where}: none of the forms"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r}"]
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))
    ):
        return [f"{where}: {type(value).__name__} is no {kind}"]
    if kind == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{where}: {value}"]
    found = [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            if name in known:
                found += violations(item, known[name], whole, f"{where}.{name}")
            elif isinstance(others, dict):
                found += violations(item, others, whole, f"{where}.{name}")
            else:
                found.append(f"{where}: {name} is not in the schema")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            found += violations(item, schema["items"], whole, f"{where}[{index}]")
    return found


def _written(record: RunRecord, folder: Path) -> Any:
    return json.loads(save_run(record, folder).read_text(encoding="utf-8"))


def test_the_published_schema_is_the_one_of_the_records() -> None:
    published = (_ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8")
    assert published == run_schema(), "make it again: harness report --schema > docs/run.schema.json"


def test_it_says_its_version() -> None:
    schema = json.loads(run_schema())
    assert f"version {RUN_SCHEMA_VERSION}" in schema["title"]
    assert schema["properties"]["schema_version"]["maximum"] == RUN_SCHEMA_VERSION
    assert "schema_version" in schema["required"]


@pytest.mark.parametrize(
    "record", [samples.clean(), samples.failing(), samples.eight_cards(), samples.empty(), samples.hostile()]
)
def test_what_is_written_is_what_it_says(record: RunRecord, tmp_path: Path) -> None:
    schema = json.loads(run_schema())
    assert violations(_written(record, tmp_path), schema, schema) == []


def test_a_number_that_json_has_no_word_for_is_in_it(tmp_path: Path) -> None:
    record = samples.run(samples.passed(figures=(Figure("f", float("nan"), "x"), Figure("g", float("-inf"), "x"))))
    schema = json.loads(run_schema())
    assert violations(_written(record, tmp_path), schema, schema) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"verdict": "GOOD"}, "run.verdict: 'GOOD'"),
        ({"exit_code": "0"}, "run.exit_code: str is no integer"),
        ({"new": 1}, "run: new is not in the schema"),
        ({"schema_version": RUN_SCHEMA_VERSION + 1}, f"run.schema_version: {RUN_SCHEMA_VERSION + 1}"),
        ({"results": [{}]}, "run.results[0]: check is missing"),
    ],
)
def test_what_is_no_record_is_refused_by_it(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    schema = json.loads(run_schema())
    assert problem in violations({**_written(samples.clean(), tmp_path), **change}, schema, schema)
