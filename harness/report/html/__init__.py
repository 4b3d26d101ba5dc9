"""The page for people: one file that opens offline, with its charts inside."""
