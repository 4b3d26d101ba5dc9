"""All rules, by the type of the operation."""

from __future__ import annotations

from harness.proof.evaluation import Elementwise, Entry
from harness.proof.rules import (
    elementwise,
    images,
    last_axes,
    lists,
    lookups,
    moves,
    products,
    reductions,
    sizes_of,
    variables,
)

#: The rules of one family, by its name.
FAMILIES: dict[str, dict[str, Entry]] = {
    "elementwise": elementwise.RULES,
    "images": images.RULES,
    "last_axes": last_axes.RULES,
    "lists": lists.RULES,
    "lookups": lookups.RULES,
    "moves": moves.RULES,
    "products": products.RULES,
    "reductions": reductions.RULES,
    "sizes_of": sizes_of.RULES,
    "variables": variables.RULES,
}
TABLE: dict[str, Entry] = {op_type: rule for rules in FAMILIES.values() for op_type, rule in rules.items()}
#: Rules that hold for complex numbers too.
FOR_COMPLEX = frozenset(
    "Add AddV2 AddN Sub Neg Mul Cast Sum Const ReadVariableOp AssignVariableOp AssignAddVariableOp".split()
).union(
    moves.RULES,
    sizes_of.RULES,
    lists.RULES,
    last_axes.RULES,
    (name for name, rule in elementwise.RULES.items() if isinstance(rule, Elementwise) and not rule.parts),
)
#: They are taken of sums and of parts of sums as they are.
_OF_SUMS = frozenset("Add AddV2 AddN Sub Neg Cast Sum Mean Cumsum UnsortedSegmentSum".split())
_ROW_BY_ROW = ("elementwise", "images", "last_axes", "lookups", "products", "reductions")
#: What one row gives of a sum over rows is that row to these.
OF_ROWS = frozenset().union(*(rules for name, rules in FAMILIES.items() if name in _ROW_BY_ROW)) - _OF_SUMS
