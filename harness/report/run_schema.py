"""The schema of ``run.json``, made of the records: ``docs/run.schema.json`` is what this gives."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from harness.records import RUN_SCHEMA_VERSION, RunRecord

#: Where the published schema is, in the repository.
SCHEMA_FILE = "docs/run.schema.json"


class _Schema(GenerateJsonSchema):
    """Of numbers that JSON has no word for, the record has the words."""

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        return {"anyOf": [super().float_schema(schema), {"enum": ["nan", "inf", "-inf"]}]}


def run_schema() -> str:
    """The JSON Schema (2020-12) of a ``run.json`` of this version, as a text that ends in a newline."""
    made = TypeAdapter(RunRecord).json_schema(schema_generator=_Schema)
    made["properties"]["schema_version"]["maximum"] = RUN_SCHEMA_VERSION
    made["properties"]["schema_version"]["minimum"] = 1
    head = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": f"run.json of harness validate, version {RUN_SCHEMA_VERSION}",
        "description": "A reader of this version accepts records of this version and of all earlier ones.",
    }
    return (
        json.dumps({**made, **head, "required": [*made["required"], "schema_version"]}, indent=2, sort_keys=True) + "\n"
    )
