"""Terms of variables alone, such as regularisers and biases, which are easily added once for each shard."""

from __future__ import annotations

from typing import Any

from harness.judgement.diagnosis.observed import draws_numbers
from harness.lazy import tf

SUMS = frozenset({"Add", "AddV2", "AddN"})
ONCE = "add this term once, after the shards' results are joined"


class Terms:
    """While a graph is built: scalars that are added to others, and depend on variables alone, with their gradients."""

    def __init__(self) -> None:
        #: Tensors that depend on variables alone, and those that were read from variables.
        self.free: set[int] = set()
        self.reads: list[Any] = []
        #: Of each term its value and its gradients for what was read.
        self.found: list[list[Any]] = []

    def on_op(self, kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> None:
        """Note an op of the graph that is built."""
        if graph is None or not outputs:
            return
        if kind == "ReadVariableOp":
            self.reads.append(outputs[0])
        if kind == "ReadVariableOp" or (
            any(tensor._id in self.free for tensor in inputs)
            and all(tensor._id in self.free or tensor.op.type == "Const" for tensor in inputs)
            and not draws_numbers(kind)
        ):
            self.free |= {tensor._id for tensor in outputs}
            return
        own = [tensor for tensor in inputs if tensor._id in self.free]
        if kind in SUMS and own and outputs[0].shape.rank == 0 and outputs[0].dtype.is_floating:
            term = tf.add_n(own)
            slopes = tf.gradients(term, self.reads, unconnected_gradients="zero")
            self.found.append([term, *map(tf.convert_to_tensor, slopes)])


def once_per_shard(count: int) -> tuple[float, str]:
    """By which factor a term is off that each of so many shards adds, and the words for it."""
    return float(count), f"counted {count} times, once for each shard, instead of once"
