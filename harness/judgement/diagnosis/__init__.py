"""Why do results differ? Hypotheses are tried by computing; one that reproduces the numbers is the cause."""
