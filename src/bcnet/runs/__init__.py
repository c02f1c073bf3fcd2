"""What a run directory tells, read without torch: checked documents, progress, forecasts, and the state of a run."""

from bcnet.runs.documents import digest, read_document
from bcnet.runs.forecast import Forecast, Planned
from bcnet.runs.record import FROM_PRIOR, STAGE_FILES, Record, StageRecord, read_record, stage_names, write_record
from bcnet.runs.status import Status, read_status

__all__ = [
    "FROM_PRIOR",
    "STAGE_FILES",
    "Forecast",
    "Planned",
    "Record",
    "StageRecord",
    "Status",
    "digest",
    "read_document",
    "read_record",
    "read_status",
    "stage_names",
    "write_record",
]
