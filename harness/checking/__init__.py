"""What a check is, and how checks run: in processes of their own, with a verdict for each."""
