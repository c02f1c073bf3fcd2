import pytest

from bcnet.errors import RunError
from bcnet.pipeline.run_directory import check_usable, read_document, read_settings, write_document
from bcnet.pipeline.settings import Settings, default_recipe, make_settings, split_changes
from bcnet.train import Recipe, recipe_names

RECIPE = Recipe(lr=0.1, batch_size=8, epochs=2)


def settings(**changes) -> Settings:
    values = {"model": "m", "data": "d", "budget_macs": 0.5, "supernet": RECIPE, "final": RECIPE}
    return make_settings(**(values | changes))


def test_settings_survive_a_file_with_the_type_of_the_budget(tmp_path):
    for budget in (0.5, 1.0, 1, 150_000_000):
        stored = settings(budget_macs=budget)
        write_document(tmp_path / "settings.json", stored.model_dump(mode="json"))
        again = read_settings(tmp_path)
        assert again == stored
        assert type(again.budget_macs) is type(budget)


def test_what_is_open_is_settled_once():
    first = settings().settled()
    assert first.device
    assert first.threads
    assert first.supernet.precision != "auto"
    stored = first.model_copy(update={"threads": 77})
    assert settings().settled(stored).threads == 77
    assert settings(threads=3).settled(stored).threads == 3


def test_the_first_difference_is_named():
    assert settings().first_difference(settings()) is None
    other = settings(final=RECIPE.changed({"schedule.final_lr": 0.01}))
    assert settings().first_difference(other) == ("final.schedule.final_lr", 0.0, 0.01)


def test_equal_settings_have_equal_fingerprints():
    assert settings().fingerprint() == settings().fingerprint()
    assert settings().fingerprint() != settings(seed=1).fingerprint()


@pytest.mark.parametrize(
    ("model", "data", "size", "recipe"),
    [
        ("resnet_digits", "digits", 8, "digits"),
        ("vgg19", "cifar10", 32, "vgg19-cifar10"),
        ("mobilenetv2", "parquet:x", 32, "mobilenetv2-cifar10"),
        ("resnet20", "cifar10", 32, "resnet-cifar10"),
        ("torchvision:resnet18", "hf:a/b", 224, "resnet50-imagenet"),
        ("timm:mobilenetv3_large_100", "hf:a/b", 224, "mobilenet_v2-imagenet"),
        ("torchvision:efficientnet_b0", "hf:a/b", 224, "efficientnet_b0-imagenet"),
        ("proxylessnas_mobile", "hf:a/b", 224, "efficientnet_b0-imagenet"),
    ],
)
def test_the_default_recipe_suits_model_and_data(model, data, size, recipe):
    assert default_recipe(model, data, size) == recipe
    assert recipe in recipe_names()


def test_changes_go_to_both_recipes_or_to_one():
    assert split_changes({"lr": 1, "supernet.epochs": 3, "final.lr": 2}) == ({"lr": 1, "epochs": 3}, {"lr": 2})


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
    with pytest.raises(RunError, match="is no run directory"):
        read_settings(tmp_path)
