"""Tasks: what a network is trained for. To add one, subclass `Task` in one file."""

from bcnet.measurement import Measurement, Metric, share_interval
from bcnet.tasks.base import Task
from bcnet.tasks.boxes import BoxTask, padded_boxes
from bcnet.tasks.classification import Classification, Loss, distillation_loss
from bcnet.tasks.coco_ap import AP, Found, Truth, average_precision
from bcnet.tasks.detection import Detection
from bcnet.tasks.imitation import Imitation
from bcnet.tasks.multilabel import MultiLabel
from bcnet.tasks.named import TASKS, name_of_task, task_described, task_named
from bcnet.tasks.one_stage import OneStageDetection
from bcnet.tasks.regression import DenseRegression, Regression
from bcnet.tasks.segmentation import Segmentation
from bcnet.tasks.shown import Shown

__all__ = [
    "AP",
    "TASKS",
    "BoxTask",
    "Classification",
    "DenseRegression",
    "Detection",
    "Found",
    "Imitation",
    "Loss",
    "Measurement",
    "Metric",
    "MultiLabel",
    "OneStageDetection",
    "Regression",
    "Segmentation",
    "Shown",
    "Task",
    "Truth",
    "average_precision",
    "distillation_loss",
    "name_of_task",
    "padded_boxes",
    "share_interval",
    "task_described",
    "task_named",
]
