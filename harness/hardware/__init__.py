"""Is the machine sound? One folder per check; beside them what the checks share."""
