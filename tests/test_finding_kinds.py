from __future__ import annotations

from harness.finding_kinds import KINDS, find_kind

#: A code never changes its meaning. New kinds get new codes.
STABLE = {
    "H101": "structure",
    "H102": "shape",
    "H103": "dtype",
    "H104": "value",
    "H105": "gradient",
    "H106": "missing-gradient",
    "H107": "nondeterminism",
    "H108": "error",
    "H201": "op-placement",
    "H202": "gradient-placement",
    "H203": "variable-placement",
    "H204": "unused-device",
    "H205": "transfer",
    "H206": "shared-gpu",
    "H207": "repeated-work",
    "H208": "serial-devices",
    "H301": "sync",
    "H302": "update-count",
    "H303": "input",
    "H401": "software",
    "H402": "missing-device",
    "H403": "memory",
    "H404": "corruption",
    "H405": "arithmetic",
    "H406": "rate",
    "H407": "link",
    "H408": "sensor",
    "H409": "isolation",
    "H410": "mixed-cards",
}


def test_codes_are_unique_and_never_change() -> None:
    codes = {kind.code: kind.name for kind in KINDS.values()}
    assert len(codes) == len(KINDS)
    assert codes == STABLE


def test_every_kind_is_explained_in_full_without_a_final_full_stop() -> None:
    for kind in KINDS.values():
        for text in kind:
            assert text
            assert text == text.strip().removesuffix(".")


def test_a_kind_is_found_by_code_and_name_alone() -> None:
    for kind in KINDS.values():
        assert find_kind(kind.code) is find_kind(f" {kind.code.lower()} ") is find_kind(kind.name) is kind
    for text in ("", "H1", "H10", "valu", "values"):
        assert find_kind(text) is None
