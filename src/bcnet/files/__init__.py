"""Files of a run that survive: written whole or not at all, checked when read, never a pickle."""
