"""Makes the schema of ``run.json`` from the records: the content of ``docs/run.schema.json``."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from harness.records import RUN_SCHEMA_VERSION, RunRecord


class _Schema(GenerateJsonSchema):
    """The record writes numbers that JSON lacks as texts."""

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        return {"anyOf": [super().float_schema(schema), {"enum": ["nan", "inf", "-inf"]}]}


def run_schema() -> str:
    """Write the JSON Schema (2020-12) of a ``run.json`` of this version."""
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
