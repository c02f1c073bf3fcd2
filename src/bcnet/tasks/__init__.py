"""Tasks: what a network is trained for. To add one, write a `Task` in a file of its own."""

from bcnet.tasks.base import Measurement, Metric, Task, share_interval
from bcnet.tasks.classification import Classification, Loss, distillation_loss

__all__ = ["Classification", "Loss", "Measurement", "Metric", "Task", "distillation_loss", "share_interval"]
