"""Is a link between machines slow, or wrong? Schedule, agents on the nodes, judging."""
