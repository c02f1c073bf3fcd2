"""Training of supernets and networks: one loop, recipes, strategies."""

from bcnet.train.batches import EpochBatches
from bcnet.train.counts import ChannelCounts
from bcnet.train.evaluate import Accuracy, accuracy
from bcnet.train.failed_step import FailedStep, load_failed_step
from bcnet.train.learner import Learner, NetworkLearner, SupernetLearner
from bcnet.train.loop import Begun, Progress, train
from bcnet.train.own_loop import SupernetSteps
from bcnet.train.randomness import derived_generator, derived_seed
from bcnet.train.recipe import Cosine, Distillation, Exponential, Recipe, Steps, load_recipe, parse_recipe, recipe_names
from bcnet.train.records import LossRecords
from bcnet.train.reduction import Reduction
from bcnet.train.replay import PathReplay, Replay, replay
from bcnet.train.saving import CHECKPOINT_SECONDS, Checkpoints
from bcnet.train.schedule import learning_rate
from bcnet.train.step import (
    STRATEGIES,
    Bilateral,
    BoundedComplementary,
    Complementary,
    Path,
    Sandwich,
    Strategy,
    Term,
    Unilateral,
    UnilateralComplementary,
    accumulate_gradients,
)

__all__ = [
    "CHECKPOINT_SECONDS",
    "STRATEGIES",
    "Accuracy",
    "Begun",
    "Bilateral",
    "BoundedComplementary",
    "ChannelCounts",
    "Checkpoints",
    "Complementary",
    "Cosine",
    "Distillation",
    "EpochBatches",
    "Exponential",
    "FailedStep",
    "Learner",
    "LossRecords",
    "NetworkLearner",
    "Path",
    "PathReplay",
    "Progress",
    "Recipe",
    "Reduction",
    "Replay",
    "Sandwich",
    "Steps",
    "Strategy",
    "SupernetLearner",
    "SupernetSteps",
    "Term",
    "Unilateral",
    "UnilateralComplementary",
    "accumulate_gradients",
    "accuracy",
    "derived_generator",
    "derived_seed",
    "learning_rate",
    "load_failed_step",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
    "replay",
    "train",
]
