"""Whether hardware is right: pure functions of what was read and measured, which touch no machine."""
