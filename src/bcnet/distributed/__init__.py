"""Several processes on one run, started by torchrun; a single process is a world of one."""

from bcnet.distributed.launch import joined, leads
from bcnet.distributed.world import Loaded, World

__all__ = ["Loaded", "World", "joined", "leads"]
