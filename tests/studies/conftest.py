"""The studies are scripts; their modules are imported from their folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "studies"))
