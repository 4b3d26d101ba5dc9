"""How fast: speedups measured in interleaved pairs, their intervals, and what became of them since a baseline."""
