"""What a machine must pass: one file a check, and the list of them."""
