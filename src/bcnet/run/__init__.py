"""A run: its settings, its data, its directory, and the reader of its files."""
