import inspect
import sys

import pytest
import torch
from pydantic import Field
from tiny_job import TinyNetwork

import bcnet
from bcnet import Budget, DataSet
from bcnet.api import resolve
from bcnet.errors import RecipeError, RunError
from bcnet.files.documents import read_document, write_document
from bcnet.run.directory import check_usable, read_settings
from bcnet.run.recipes import check_training, default_recipe, for_few_images
from bcnet.run.settings import Settings, SpaceSettings, make_section, make_settings
from bcnet.searchers import Evolution
from bcnet.space import WidthSpace
from bcnet.space.options import SpaceOptions
from bcnet.train import Recipe, load_recipe, recipe_names

RECIPE = Recipe(lr=0.1, batch_size=8, epochs=2)


def settings(**changes) -> Settings:
    values = {"model": "m", "data": "d", "limits": {"macs": 0.5}, "method": bcnet.Uniform(), "training": RECIPE}
    return make_settings(**(values | changes))


def test_settings_survive_a_file_with_the_type_of_the_budget(tmp_path):
    for budget in (0.5, 1.0, 1, 150_000_000):
        stored = settings(limits={"macs": budget})
        write_document(tmp_path / "settings.json", stored.to_document())
        again = read_settings(tmp_path)
        assert again == stored
        assert type(again.limits["macs"]) is type(budget)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (bcnet.SpaceSettings, {"multiple_of": 0}, "^space: 'multiple_of' must be an int of at least 1.*; got 0"),
        (bcnet.RunOptions, {"threads": -1}, "^options: 'threads' must be greater than 0; got -1"),
        (bcnet.RunOptions, {"thread": 1}, "^options: unknown key 'thread': did you mean 'threads'"),
    ],
)
def test_a_section_says_what_is_wrong_with_a_field(kind, fields, message):
    with pytest.raises(RecipeError, match=message):
        kind(**fields)
    with pytest.raises(RecipeError, match=message):
        make_section(kind, fields)


def test_a_stored_file_of_other_settings_is_named(tmp_path):
    for section, key, wrong in (("space", "num_choices", 0), ("training", "lr", -1), ("options", "threads", "many")):
        document = settings().to_document()
        document[section] |= {key: wrong}
        write_document(tmp_path / "settings.json", document)
        message = f"does not hold settings of this version: {section}: '{key}' must be .*; got {wrong!r}: start"
        with pytest.raises(RunError, match=message):
            read_settings(tmp_path)


@pytest.mark.parametrize(
    ("part", "settings"),
    [(WidthSpace.trace, SpaceSettings), (SpaceOptions, SpaceSettings), (Evolution, bcnet.BCNet)],
)
def test_a_part_by_itself_has_the_defaults_of_the_settings(part, settings):
    fields = settings.model_fields
    shared = {name: p.default for name, p in inspect.signature(part).parameters.items() if name in fields}
    assert "population" in shared or "num_choices" in shared
    assert shared == {name: fields[name].default for name in shared}


def test_what_is_open_is_settled_once():
    first = settings(method=bcnet.BCNet(training=RECIPE)).resolve()
    assert first.options.device
    assert first.options.threads
    assert "auto" not in (first.supernet_recipe.precision, first.training.precision, first.options.layout)
    stored = first.model_copy(update={"options": first.options.model_copy(update={"threads": 77})})
    assert settings().resolve(stored).options.threads == 77
    assert settings(options={"threads": 3}).resolve(stored).options.threads == 3


def test_the_first_difference_is_named():
    assert settings().first_difference(settings()) is None
    other = settings(training=RECIPE.with_changes({"schedule.final_lr": 0.01}))
    assert settings().first_difference(other) == ("training.schedule.final_lr", 0.0, 0.01)


def test_equal_settings_have_equal_fingerprints():
    assert settings().fingerprint() == settings().fingerprint()
    assert settings().fingerprint() != settings(seed=1).fingerprint()


def test_a_version_with_more_settings_reads_earlier_runs():
    class LaterRecipe(Recipe):
        clipping: float = 0.0

    class Later(Settings):
        depth: int = 0
        names: tuple[str, ...] = Field(default_factory=tuple)

    now = settings(method=bcnet.BCNet(population=7))
    values = {name: getattr(now, name) for name in Settings.model_fields}
    final = LaterRecipe(**RECIPE.model_dump())
    assert Later(**values).fingerprint() == now.fingerprint()
    assert Later(**values | {"training": final}).fingerprint() == now.fingerprint()
    for other in ({"depth": 1}, {"names": ("a",)}, {"training": final.model_copy(update={"clipping": 1.0})}):
        assert Later(**values | other).fingerprint() != now.fingerprint()


def test_every_setting_counts_but_those_that_may_change():
    usual = settings(training=RECIPE)
    others = {
        "schedule": {"schedule.final_lr": 0.01},
        "lr": {"lr": 0.3},
        "distillation": {"distillation": {"weight": 0.5}},
    }
    seen = {settings(training=RECIPE.with_changes(change)).fingerprint() for change in others.values()}
    assert len(seen | {usual.fingerprint(), settings(seed=1).fingerprint()}) == 5
    assert settings(training=RECIPE.with_changes({"max_bad_steps": 9})).fingerprint() == usual.fingerprint()
    decoding = settings(training=RECIPE, options={"workers": 0})
    assert decoding.fingerprint() == usual.fingerprint()
    assert decoding.first_difference(usual) is None


@pytest.mark.parametrize(
    ("model", "data", "size", "recipe"),
    [
        ("resnet_digits", "digits", 8, "digits"),
        ("vgg19", "cifar10", 32, "vgg19-cifar10"),
        ("mobilenetv2", "parquet:x", 32, "mobilenetv2-cifar10"),
        ("resnet20", "cifar10", 32, "resnet-cifar10"),
        ("vgg19", "cifar10", 16, "vgg19-cifar10"),
        ("resnet20", "stripes", 8, "resnet-cifar10"),
        ("torchvision:resnet18", "hf:a/b", 224, "resnet50-imagenet"),
        ("timm:mobilenetv3_large_100", "hf:a/b", 224, "mobilenet_v2-imagenet"),
        ("torchvision:efficientnet_b0", "hf:a/b", 224, "efficientnet_b0-imagenet"),
        ("proxylessnas_mobile", "hf:a/b", 224, "efficientnet_b0-imagenet"),
    ],
)
def test_the_default_recipe_suits_model_and_data(model, data, size, recipe):
    assert default_recipe(model, data, size) == recipe
    assert recipe in recipe_names()


@pytest.mark.parametrize(("images", "batch"), [(50_000, 256), (1024, 256), (1023, 128), (48, 8), (5, 8)])
def test_few_images_get_small_batches_at_a_rate_in_proportion(images, batch):
    usual = load_recipe("mobilenetv2-cifar10")
    assert usual.batch_size == 256
    fitted = for_few_images(usual, images)
    assert fitted.batch_size == batch
    assert fitted.lr / usual.lr == fitted.schedule.final_lr / usual.schedule.final_lr == pytest.approx(batch / 256)
    assert fitted.model_copy(update={n: getattr(usual, n) for n in ("batch_size", "lr", "schedule")}) == usual


def test_a_batch_that_the_user_chose_stays(tmp_path):
    def batches(**choices):
        budget = Budget(macs=0.5)
        _, settings = resolve(TinyNetwork, few, budget, tmp_path, **{"method": bcnet.BCNet()} | choices)
        return settings.supernet_recipe.batch_size, settings.training.batch_size

    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (70, 1, 8, 8), dtype=torch.uint8, generator=generator)
    part = pixels, torch.arange(70) % 3
    few = DataSet.from_tensors(part, part, name="few")
    assert batches() == (16, 16)
    assert batches(training={"batch_size": 32}) == (32, 32)
    assert batches(method=bcnet.BCNet(training={"batch_size": 32})) == (32, 16)
    assert batches(training=load_recipe("digits").with_changes({"batch_size": 24})) == (24, 24)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"sha256": 3}', b"[" * 100_000])
def test_a_document_that_is_not_ours_is_damaged(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        read_document(path)


def test_a_changed_number_is_noticed(tmp_path):
    path = tmp_path / "x.json"
    write_document(path, {"top1": 91.5})
    assert read_document(path) == {"top1": 91.5}
    path.write_text(path.read_text().replace("91.5", "99.5"))
    with pytest.raises(RunError, match="is damaged"):
        read_document(path)


def test_a_free_or_empty_folder_is_usable(tmp_path):
    check_usable(tmp_path / "new")
    check_usable(tmp_path)
    (tmp_path / ".settings.json.1.tmp").touch()  # left by a process that died while it started
    (tmp_path / "lock").touch()
    check_usable(tmp_path)


def test_settings_are_looked_for_where_a_run_should_be(tmp_path):
    with pytest.raises(RunError, match="is not a run directory"):
        read_settings(tmp_path)


TO_FETCH = "parquet:/no/such/folder"
WRONG_ALWAYS = {
    "recipe": ({"training": "vgg"}, "a recipe must be a .yaml file or one of"),
    "key": ({"training": {"speed": 3}}, "unknown key 'speed'"),
    "value": ({"training": {"lr": -1}}, "'lr' must be greater than 0; got -1"),
    "part of the recipe": ({"training": {"recipe": "vgg19-cifar10", "schedule.pace": 1}}, "pace"),
    "number": ({"training": 3}, "training must be a bcnet.Recipe, its name, or a mapping of changes; got 3"),
    "epochs": ({"epochs": 0}, "'epochs' must be greater than 0; got 0"),
    "start": ({"start": "taste"}, "start must be one of scratch, original, pretrained, supernet; got 'taste'"),
    "method": ({"method": "best"}, "a method must be one of trainings, bcnet"),
    "field of a method": ({"method": "bcnet:haste=3"}, "BCNet: unknown key 'haste'"),
    "value of a method": ({"method": "bcnet:score=taste"}, "'score' must be .*got 'taste'"),
    "space": ({"space": {"haste": 3}}, "space: unknown key 'haste'"),
    "options": ({"options": {"threads": 0}}, "options: 'threads' must be greater than 0; got 0"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_ALWAYS.values())
def test_what_no_data_make_right_is_said_before_a_search_fetches_any(wrong, message, tmp_path):
    with pytest.raises(RecipeError, match=message):
        resolve("resnet_digits", TO_FETCH, budget=Budget(macs=0.5), run_dir=tmp_path / "run", **wrong)


OF_SOME = [{"schedule.milestones": [1]}, {"schedule.final_lr": 0.001}, {"schedule.factor": 0.5}, {"lr": 1e-6}]


@pytest.mark.parametrize("changes", OF_SOME)
def test_a_change_that_only_some_recipes_take_waits_while_the_recipe_is_open(changes):
    assert check_training(changes, None) == (None, changes)


OF_NONE = {
    "schedule.x": (1, "unknown key 'schedule.x'"),
    "schedule.milestones": (3, "'schedule.milestones'.* got 3"),
    "schedule.factor": (2, "'schedule.factor' .*; got 2"),
    "distillation.heat": (1, "'distillation.heat'"),
    "lr.peak": (1, "'lr' has no settings inside"),
}


@pytest.mark.parametrize("key", OF_NONE)
def test_a_change_that_no_recipe_takes_is_refused_while_the_recipe_is_open(key):
    value, message = OF_NONE[key]
    with pytest.raises(RecipeError, match=message):
        check_training({key: value}, None)


@pytest.mark.parametrize("changes", OF_SOME)
@pytest.mark.parametrize("name", recipe_names())
def test_a_change_of_a_recipe_is_refused_exactly_where_it_cannot_be_made(name, changes):
    recipe = load_recipe(name)
    refusals = []
    for attempt in (lambda: recipe.with_changes(changes), lambda: check_training({"recipe": name, **changes}, None)):
        try:
            attempt()
            refusals.append(None)
        except RecipeError as refusal:
            refusals.append(str(refusal))
    assert refusals[0] == refusals[1]


def test_a_package_that_is_missing_is_said_before_data_are_fetched(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(RecipeError, match="bcnet\\[magnitude\\]"):
        resolve(
            "resnet_digits",
            TO_FETCH,
            budget=Budget(macs=0.5),
            run_dir=tmp_path / "run",
            method=bcnet.Pruned(criterion="magnitude"),
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_width": "a"}, "'min_width' must be a valid integer, .*, or a valid dictionary; got 'a'$"),
        ({"min_width": {"first": "a"}}, "'min_width.first' must be a valid integer, .*; got 'a'$"),
        ({"multiple_of": "a"}, "'multiple_of' must be an int of at least 1, 'fast', 'auto', .*; got 'a'$"),
    ],
)
def test_a_field_of_several_types_is_described_once(given, message):
    with pytest.raises(RecipeError, match=message):
        make_section(SpaceSettings, given)
