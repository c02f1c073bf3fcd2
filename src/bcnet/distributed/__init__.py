"""Several processes on one run, started by torchrun; a single process is a world of one."""

from bcnet.distributed.launch import is_rank_zero, join_processes
from bcnet.distributed.process_group import Loaded, ProcessGroup

__all__ = ["Loaded", "ProcessGroup", "is_rank_zero", "join_processes"]
