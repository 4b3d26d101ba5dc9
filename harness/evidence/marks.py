"""What the recorder writes onto the nodes of a graph while it is built. It survives inlining and placement."""

from __future__ import annotations

#: On a backward op: the name of its forward op, in the same graph.
FORWARD_ATTRIBUTE = "_harness_forward"
#: The same, where the forward op is in another graph.
FORWARD_ELSEWHERE_ATTRIBUTE = "_harness_forward_elsewhere"
#: On a backward op that belongs to no single forward op, such as a sum of gradients.
BACKWARD_ATTRIBUTE = "_harness_backward"
MARKS = (FORWARD_ATTRIBUTE, FORWARD_ELSEWHERE_ATTRIBUTE, BACKWARD_ATTRIBUTE)
