"""Tasks by name: what files and commands say is the task that was meant, and nothing else is taken for one."""

import inspect
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_job import TinyNetwork

import bcnet
from bcnet.errors import RecipeError
from bcnet.tasks import (
    TASKS,
    Classification,
    DenseRegression,
    Detection,
    MultiLabel,
    Regression,
    Segmentation,
    name_of_task,
    task_described,
    task_named,
)

BUILT_IN = st.one_of(
    st.just(Classification()),
    st.builds(
        Segmentation, st.integers(2, 99), ignore=st.sampled_from([-1, 255, 100]), dice=st.floats(0, 1, allow_nan=False)
    ),
    st.builds(Detection, *[st.integers(1, 999)] * 4),
    st.builds(MultiLabel, st.integers(1, 99)),
    st.builds(Regression, st.integers(1, 99)),
    st.builds(DenseRegression, peak=st.floats(0.001, 1e6)),
)


@given(BUILT_IN)
def test_a_task_of_ours_is_its_name_and_its_description(task):
    assert task_named(name_of_task(task.description)) == task
    assert task_described(task.description) == task
    assert type(task) in TASKS.values()


def test_all_tasks_of_ours_have_a_name():
    ours = {task for task in vars(bcnet.tasks).values() if isinstance(task, type) and issubclass(task, bcnet.Task)}
    of_an_object = {bcnet.tasks.OneStageDetection}  # a detector, which no text says
    assert set(TASKS.values()) == {task for task in ours if not inspect.isabstract(task)} - of_an_object


def test_settings_left_out_are_as_they_are():
    assert task_named("segmentation:classes=21") == Segmentation(21)
    assert task_named("segmentation: classes = 21 , dice=0.5") == Segmentation(21, dice=0.5)
    assert task_named("dense-regression") == DenseRegression()


class Counting(bcnet.Task):
    name = "counting"
    headline = bcnet.tasks.Metric("mae", "mean absolute error", higher=False)

    def loss(self, outputs, targets):
        return (outputs[:, 0] - targets).square().mean()

    def score(self, outputs, targets):
        return -(outputs[:, 0] - targets).abs()

    def figures(self, outputs, targets):
        return {"mae": (outputs[:, 0] - targets).abs()}


def no_task():
    return TinyNetwork


def test_a_task_of_somebodys_own_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    assert isinstance(task_named("mine:Counting"), Counting)
    assert task_described(Counting().description) is None
    assert name_of_task("segmenting squares") is None
    assert task_described("segmentation {broken") is None
    with pytest.raises(RecipeError, match=r"has to give a bcnet\.Task; got type: return the task itself"):
        task_named("mine:no_task")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("segmentatoin", r"one of classification, .* package.module:factory; got .* \(nearest: segmentation\)"),
        ("segmentatio:classes=2", r"got 'segmentatio:classes=2' \(nearest: segmentation\)"),
        ("segmentation", "has the settings classes, ignore, dice; got no classes"),
        ("segmentation:21", "got 'segmentation:21': settings are key=value, with commas"),
        ("segmentation:classes=21,size=3", "the settings classes, ignore, dice; got 'size'"),
        ("segmentation:classes=many", "the task segmentation: classes: .* integer.*; got 'many'"),
        ("segmentation:classes=1", "at least 2 classes.*got Segmentation"),
        ("classification:own=loss", "has the settings class_weights; got 'own'"),
        ("no such:task", "package.module:factory; got 'no such:task'"),
        ("no_such_module:task", "the module of task 'no_such_module:task' has to be importable"),
    ],
)
def test_what_is_no_task_ends_with_one_message(name, message):
    with pytest.raises(RecipeError, match=message) as raised:
        task_named(name)
    assert "\n" not in str(raised.value)
