import pytest
from pydantic import ValidationError

from bcnet.errors import RecipeError
from bcnet.train import Cosine, Exponential, Recipe, Steps, learning_rate, load_recipe, parse_recipe, recipe_names
from bcnet.train.recipe import AreaCrop, Crop

BASE = {"lr": 0.1, "batch_size": 8, "epochs": 10}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 1}, r"unknown key 'learning_rate': the keys are optimizer, lr"),
        ({"epoch": 1}, r"unknown key 'epoch': did you mean 'epochs'\? The keys are optimizer, lr"),
        ({"lr": "fast"}, r"'lr' must be a valid number.*; got 'fast'"),
        ({"lr": -1.0}, r"'lr' must be greater than 0; got -1.0"),
        ({"lr": float("nan")}, r"'lr' must be a finite number; got nan"),
        ({"epochs": 1.5}, r"'epochs' must be a valid integer.*; got 1.5"),
        ({"optimizer": "adam"}, r"'optimizer' must be 'sgd-nesterov', 'rmsprop' or 'adamw'; got 'adam'"),
        ({"precision": "fp8"}, r"'precision' must be 'auto', 'fp32', 'bf16' or 'fp16'"),
        ({"schedule": {"kind": "step"}}, r"key 'schedule.milestones' is required"),
        ({"schedule.final": 1}, r"unknown key 'schedule.final'"),
        ({"lr.deep": 1}, r"'lr' has no settings inside"),
        ({"distillation.weight": 2}, r"'distillation.weight' must be less than or equal to 1; got 2"),
    ],
)
def test_a_wrong_setting_is_named(changes, message):
    with pytest.raises(RecipeError, match=message):
        Recipe(**BASE).with_changes(changes)


def test_what_a_recipe_leaves_out_is_what_the_paper_trains_with():
    recipe = Recipe(**BASE)
    assert recipe.decay_norm_and_bias  # no parameter is spared
    assert (recipe.optimizer, recipe.momentum, recipe.label_smoothing) == ("sgd-nesterov", 0.9, 0.0)
    assert (recipe.distillation, recipe.augmentation) == (None, None)
    assert Crop().flip
    assert AreaCrop().flip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a mapping"),
        ("lr: [", "must be YAML"),
        ("!!python/object/apply:os.system ['true']", "must be YAML"),
        ("lr: 0.1", "'batch_size' is required"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


def test_a_missing_recipe_lists_what_there_is(tmp_path):
    with pytest.raises(RecipeError, match=r"one of .*vgg19-cifar10"):
        load_recipe("vgg20-cifar10")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid(name):
    assert load_recipe(name).epochs > 0


def test_the_papers_recipes_say_what_the_table_says():
    vgg = load_recipe("vgg19-cifar10")
    assert (vgg.batch_size, vgg.epochs, vgg.weight_decay) == (128, 400, 1e-4)
    assert vgg.schedule == Steps(milestones=(160, 240), factor=0.1)
    efficient = load_recipe("efficientnet_b0-imagenet")
    assert (efficient.optimizer, efficient.lr, efficient.batch_size, efficient.warmup_epochs) == (
        "rmsprop",
        0.128,
        1024,
        5,
    )
    assert efficient.schedule == Exponential(factor=0.963, every_epochs=3)
    resnet = load_recipe("resnet50-imagenet")
    assert (resnet.epochs, resnet.weight_decay, resnet.schedule) == (120, 1e-4, Cosine(final_lr=1e-5))
    for name in ("mobilenet_v2-imagenet", "mobilenetv2-cifar10"):
        recipe = load_recipe(name)
        assert (recipe.epochs, recipe.batch_size, recipe.weight_decay) == (300, 256, 5e-5)


def test_the_kind_of_schedule_can_change():
    recipe = Recipe(**BASE, schedule=Steps(milestones=(3,)))
    changed = recipe.with_changes({"schedule.kind": "cosine", "schedule.final_lr": "1e-3"})
    assert changed.schedule == Cosine(final_lr=1e-3)


def test_a_recipe_survives_json():
    recipe = load_recipe("vgg19-cifar10")
    assert parse_recipe(recipe.model_dump(mode="json")) == recipe


def test_cosine_meets_its_end_points():
    recipe = Recipe(**BASE, schedule=Cosine(final_lr=1e-3), warmup_epochs=1)
    rates = [learning_rate(recipe, step, 5) for step in range(50)]
    assert rates[5] == pytest.approx(0.1, abs=0)
    assert rates[-1] == pytest.approx(1e-3, abs=1e-18)
    assert rates[:6] == sorted(rates[:6])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[0] == pytest.approx(0.1 / 6)
    assert rates[27] == pytest.approx((0.1 + 1e-3) / 2, rel=0.02)


def test_step_schedule_changes_at_the_milestone():
    recipe = Recipe(**BASE, schedule=Steps(milestones=(3, 6), factor=0.1))
    rates = [learning_rate(recipe, epoch * 7, 7) for epoch in range(10)]
    assert rates == pytest.approx([0.1] * 3 + [0.01] * 3 + [0.001] * 4)
    assert learning_rate(recipe, 3 * 7 - 1, 7) == 0.1


def test_exponential_schedule_decays_every_n_epochs():
    recipe = Recipe(**BASE, schedule=Exponential(factor=0.5, every_epochs=3), warmup_epochs=1)
    rates = [learning_rate(recipe, epoch * 4, 4) for epoch in range(10)]
    assert rates[1:] == pytest.approx([0.1] * 2 + [0.05] * 3 + [0.025] * 3 + [0.0125])
    assert rates[0] == pytest.approx(0.1 / 5)


def test_one_step_is_no_division_by_zero():
    recipe = Recipe(lr=0.1, batch_size=1, epochs=1, schedule=Cosine())
    assert learning_rate(recipe, 0, 1) == 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule.final_lr": 0.3}, r"'schedule.final_lr' must be at most 'lr', 0.1; got 0.3"),
        ({"schedule.kind": "step", "schedule.milestones": [9, 3]}, r"'schedule.milestones' must ascend; got \[9, 3\]"),
        ({"augmentation.kind": "cutout"}, "'augmentation.kind' must be one of 'crop', 'resized-crop'; got 'cutout'"),
        ({"augmentation.kind": "crop", "augmentation.min_area": 0.5}, "unknown key 'augmentation.min_area'"),
        (
            {"augmentation.kind": "resized-crop", "augmentation.min_area": 2},
            "'augmentation.min_area' must",
        ),
    ],
)
def test_impossible_combinations_are_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("resnet50-imagenet").with_changes(changes)


def test_a_recipe_that_lacks_something_says_what_and_what_else_there_is():
    with pytest.raises(RecipeError, match=r"key 'lr' is required.*'batch_size' is required.*training=\{'epochs': 3\}"):
        Recipe(epochs=3)
    with pytest.raises(RecipeError, match=r"unknown key 'epoch': did you mean 'epochs'"):
        Recipe(lr=0.1, batch_size=8, epochs=1, epoch=2)


def test_a_part_without_its_kind_says_which_there_are():
    with pytest.raises(
        RecipeError, match=r"'augmentation' needs its kind .* augmentation\.kind to one of 'crop', 'res"
    ):
        Recipe(lr=0.1, batch_size=8, epochs=1).with_changes({"augmentation.flip": False})


def test_small_images_are_cropped_and_flipped_as_is_usual():
    assert (Crop().padding, Crop().flip) == (4, True)


def test_a_value_too_deep_to_show_is_refused_all_the_same():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecipeError, match=r"'lr' must be .*; got a list too long to show"):
        parse_recipe({"lr": deep, "batch_size": 8, "epochs": 1})


def test_a_recipe_does_not_change():
    recipe = Recipe(lr=0.1, batch_size=8, epochs=2)
    with pytest.raises(ValidationError, match="frozen"):
        recipe.lr = 0.2
    assert recipe.lr == 0.1
