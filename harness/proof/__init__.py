"""Do two programs compute the same, for every input? It imports no judgement and runs no program."""
