"""What people and machines read: the terminal and ``run.json``."""
