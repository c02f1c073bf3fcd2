"""A run: its settings, its directory, and what it holds."""
