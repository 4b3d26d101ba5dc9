"""What ran where? One record of it, made once, that any rule can read."""
