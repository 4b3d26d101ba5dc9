"""How much memory does a program need on each device, and does it give it back?

``memory.py`` is what users see. The numbers come from TensorFlow's allocator on a GPU or software GPU; on logical CPUs,
which share the memory of the process, from the allocations that TensorFlow's profiler records and from the tensors that
Python holds.
"""
