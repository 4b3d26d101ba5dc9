"""The ways to use several devices: data parallel (``make_parallel``)."""
