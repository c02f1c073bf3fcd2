"""A run: its settings, its data, its directory, and what can be read from it."""
