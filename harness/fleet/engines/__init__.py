"""How a command gets to each machine: one file per engine. All give the same record."""
