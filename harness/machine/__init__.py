"""What the machine is and does: its cards, its software, what can be done on it, and what a card should reach."""
