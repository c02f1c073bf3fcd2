"""Training of supernets and networks: one loop, recipes, strategies."""

from bcnet.train.batches import EpochBatches, FirstBatches
from bcnet.train.learner import Learner, NetworkLearner, SupernetLearner
from bcnet.train.loop import Interrupted, Progress, train
from bcnet.train.own_loop import SupernetSteps
from bcnet.train.randomness import derived_generator, derived_seed
from bcnet.train.recipe import Cosine, Distillation, Exponential, Recipe, Steps, load_recipe, parse_recipe, recipe_names
from bcnet.train.records import ChannelCounts, LossRecords
from bcnet.train.reduction import Reduction
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
from bcnet.train.stopping import EarlyStopping

__all__ = [
    "CHECKPOINT_SECONDS",
    "STRATEGIES",
    "Bilateral",
    "BoundedComplementary",
    "ChannelCounts",
    "Checkpoints",
    "Complementary",
    "Cosine",
    "Distillation",
    "EarlyStopping",
    "EpochBatches",
    "Exponential",
    "FirstBatches",
    "Interrupted",
    "Learner",
    "LossRecords",
    "NetworkLearner",
    "Path",
    "Progress",
    "Recipe",
    "Reduction",
    "Sandwich",
    "Steps",
    "Strategy",
    "SupernetLearner",
    "SupernetSteps",
    "Term",
    "Unilateral",
    "UnilateralComplementary",
    "accumulate_gradients",
    "derived_generator",
    "derived_seed",
    "learning_rate",
    "load_recipe",
    "parse_recipe",
    "recipe_names",
    "train",
]
