"""Several processes on one run, started by torchrun; a single process is a world of one."""

from bcnet.distributed.launch import is_rank_zero, joined
from bcnet.distributed.process_group import Loaded, ProcessGroup

__all__ = ["Loaded", "ProcessGroup", "is_rank_zero", "joined"]
