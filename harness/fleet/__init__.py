"""Which machines of many need an action? Runs them by an existing engine, keeps their records, judges them together."""
