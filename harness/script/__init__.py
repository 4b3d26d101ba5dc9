"""Does the step of a user's script run where it should, and what would mend it? ``harness check``."""
