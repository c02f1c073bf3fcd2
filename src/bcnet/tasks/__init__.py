"""Tasks: what a network is trained for. To add one, write a `Task` in a file of its own."""

from bcnet.tasks.base import Measurement, Metric, Task, share_interval
from bcnet.tasks.classification import Classification, Loss, distillation_loss
from bcnet.tasks.multilabel import MultiLabel
from bcnet.tasks.regression import DenseRegression, Regression
from bcnet.tasks.segmentation import Segmentation

__all__ = [
    "Classification",
    "DenseRegression",
    "Loss",
    "Measurement",
    "Metric",
    "MultiLabel",
    "Regression",
    "Segmentation",
    "Task",
    "distillation_loss",
    "share_interval",
]
