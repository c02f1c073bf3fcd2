"""What is fuzzed: every kind of file that the library reads, how it is changed, and how it is read.

A *sealed* kind is changed first and given a good checksum then, as a stranger would: it may be read or refused. A kind
with a checksum that is changed afterwards must be refused, or be read as what it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.robustness.fuzz_base import Target
from tests.robustness.fuzz_brought import BROUGHT
from tests.robustness.fuzz_files import (
    Architecture,
    Evaluations,
    Exported,
    Journal,
    NamedExport,
    Picture,
    RecipeFile,
    Table,
)
from tests.robustness.fuzz_states import (
    Checkpoint,
    Document,
    Progress,
    Result,
    SealedCheckpoint,
    SealedPrior,
    SealedResult,
    SealedSettings,
    SettingsFile,
)

TARGETS: Mapping[type[Target], int] = {
    Checkpoint: 600,
    SealedCheckpoint: 400,
    Document: 500,
    SealedPrior: 400,
    SettingsFile: 300,
    SealedSettings: 400,
    Result: 300,
    SealedResult: 300,
    Progress: 300,
    Architecture: 400,
    Exported: 300,
    NamedExport: 50,
    RecipeFile: 500,
    Evaluations: 600,
    Journal: 200,
    Picture: 200,
    Table: 150,
    **BROUGHT,
}
"""How many changed files of each kind make the whole study."""
