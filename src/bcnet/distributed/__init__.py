"""Several processes on one run, started by torchrun; a single process is a group of one."""

from bcnet.distributed.launch import is_rank_zero, join_processes
from bcnet.distributed.process_group import Loaded, ProcessGroup
from bcnet.distributed.side_by_side import can_fork, map_side_by_side

__all__ = ["Loaded", "ProcessGroup", "can_fork", "is_rank_zero", "join_processes", "map_side_by_side"]
