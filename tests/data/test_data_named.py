import io
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from bcnet.data import Augmentation, DataSet, given_data, imports_code, load, made_by
from bcnet.errors import DataError

CIFAR10 = Path(__file__).parents[2].parent / "shared" / "data" / "cifar10"
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def picture(value, size=(8, 8), mode="RGB"):
    generator = np.random.default_rng(value)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    return Image.fromarray(generator.integers(256, size=shape, dtype=np.uint8))


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()


def write_parquet(path, labels, *, images=None, image_column="image", label_column="label"):
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = [png(picture(i)) for i in range(len(labels))] if images is None else images
    if image_column == "image.bytes":
        column = pa.array(encoded, pa.binary())
    else:
        column = pa.array([{"bytes": content, "path": None} for content in encoded], IMAGE)
    pq.write_table(pa.table({image_column: column, label_column: labels}), path)


def write_folder(path, classes, per_class=5, **settings):
    for index, name in enumerate(classes):
        (path / name).mkdir(parents=True)
        for number in range(per_class):
            picture(100 * index + number, **settings).save(path / name / f"{number}.png")


@pytest.fixture(autouse=True)
def no_caches(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("name", ["digit", "", "parquet:", "parquet", "imagefolder:", "hf:a b", "hf:a/b/c", "mnist"])
def test_unknown_names_list_what_there_is(name):
    kinds = "parquet:PATH, imagefolder:PATH, csv:PATH, npz:PATH, imagenet:PATH, hf:.*"
    with pytest.raises(DataError, match=rf"one of digits, scattered_digits, cifar10, {kinds}; got"):
        load(name)


@pytest.mark.parametrize("image_size", [0, -1, 2.5, True])
def test_image_sizes_that_do_not_do(image_size):
    with pytest.raises(DataError, match="image_size must be a positive int; got"):
        load("digits", image_size=image_size)


def test_digits():
    data = load("digits")
    assert (data.image_shape, data.num_classes) == ((1, 8, 8), 10)
    assert data.augmentation == Augmentation(padding=1, flip=False)
    assert len(data.train) + len(data.test) == 1797
    assert len(data.test) == round(1797 / 5)
    shares = data.test.labels.bincount() / load_digits().target.shape[0] * 5
    assert torch.allclose(shares, torch.full((10,), 0.1), atol=0.005)
    assert (data.train.pixels.min(), data.train.pixels.max()) == (0, 255)
    assert torch.equal(load("digits").test.pixels, data.test.pixels)
    assert load("digits", image_size=16).image_shape == (1, 16, 16)


def test_digits_are_those_of_the_source():
    source = load_digits()
    seen = {
        tuple((image * (255 / 16)).round().astype(int).flatten()): label
        for image, label in zip(source.images, source.target, strict=True)
    }
    data = load("digits")
    for pixels, label in zip(data.train.pixels[:50], data.train.labels[:50], strict=True):
        assert seen[tuple(pixels.flatten().tolist())] == label


@pytest.mark.parametrize("image_column", ["image", "img", "image.bytes"])
@pytest.mark.parametrize("test_name", ["test", "validation"])
def test_parquet_folders(tmp_path, image_column, test_name):
    write_parquet(tmp_path / "train-0.parquet", [0, 1, 0, 1], image_column=image_column)
    write_parquet(tmp_path / f"{test_name}-0.parquet", [1, 0], image_column=image_column)
    data = load(f"parquet:{tmp_path}")
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert data.test.labels.tolist() == [1, 0]
    assert torch.equal(data.train.pixels[2], torch.from_numpy(np.array(picture(2))).permute(2, 0, 1))
    (note,) = data.notes
    assert f"images in train and {len(data.test)} images in {test_name}" in note


def test_parquet_parts_are_read_in_order(tmp_path):
    write_parquet(tmp_path / "data" / "train-00001.parquet", [1, 1])
    write_parquet(tmp_path / "data" / "train-00000.parquet", [0, 0])
    write_parquet(tmp_path / "data" / "test.parquet", [0])
    assert load(f"parquet:{tmp_path}").train.labels.tolist() == [0, 0, 1, 1]


def test_a_parquet_file_of_the_hub_keeps_its_class_names(tmp_path):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"img": [picture(i) for i in range(10)], "label": [0, 1] * 5}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "all.parquet")
    data = load(f"parquet:{tmp_path / 'all.parquet'}")
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (8, 2)
    assert sorted(data.test.labels.tolist()) == [0, 1]
    assert "a fixed fifth of every class is held out, 2 of 10" in data.notes[1]


@pytest.mark.parametrize(("labels", "names"), [(["dog", "cat"], ("cat", "dog")), ([True, False], ("False", "True"))])
def test_labels_that_are_words_are_numbered(tmp_path, labels, names):
    write_parquet(tmp_path / "train.parquet", labels * 3)
    write_parquet(tmp_path / "test.parquet", labels[::-1])
    data = load(f"parquet:{tmp_path}")
    assert data.class_names == names
    assert data.train.labels.tolist() == [1, 0] * 3
    assert data.test.labels.tolist() == [0, 1]


def test_tables_that_were_saved_to_disk(tmp_path):
    rows = {"image": [picture(number) for number in range(4)], "label": [0, 1, 0, 1]}
    tables = datasets.DatasetDict({split: datasets.Dataset.from_dict(rows) for split in ("train", "test")})
    tables.save_to_disk(str(tmp_path / "saved"))
    data = load(f"hf:{tmp_path / 'saved'}")
    assert torch.equal(data.test.pixels[1], torch.from_numpy(np.array(picture(1))).permute(2, 0, 1))
    tables["train"].save_to_disk(str(tmp_path / "one"))
    assert len(load(f"hf:{tmp_path / 'one'}").train) == 3, "one of four images is held out"
    for file in (tmp_path / "saved" / "train").iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"takes a folder that save_to_disk wrote; .* is damaged"):
        load(f"hf:{tmp_path / 'saved'}")


def test_parquet_errors(tmp_path):
    with pytest.raises(DataError, match="takes a file or a folder; got '/no/such/place', which does not exist"):
        load("parquet:/no/such/place")
    with pytest.raises(DataError, match=r"must have train\*.parquet.*; got no parquet file in"):
        load(f"parquet:{tmp_path}")
    (tmp_path / "train.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match=r"takes parquet files; .* could not be read"):
        load(f"parquet:{tmp_path}")


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        ([0, 1, 0], {"image_column": "photo"}, "a column called image or img or .*; got photo, label: rename"),
        ([0, 1, 0], {"label_column": "y"}, "a column called label or labels or .*; got image, y"),
        ([0.0, 1.0, 0.5], {}, "labels must be integers.*got 0.0 for .*, training: image 0"),
        (["a", "b", None], {}, "labels must be integers, the class numbers from 0, or words; got None for .*image 2"),
        (["a", "b", "c"], {}, "all images must be of the classes of training; got '0' for parquet.*, test: image 0"),
        ([0, None, 1], {}, "labels must be integers.*got None for .*image 1"),
        ([0, 1, -1], {}, "labels must be integers.*got -1 for .*image 2"),
        ([0, 2, 0], {}, "must have training images; got none for 1"),
        (
            [0, 1, 0],
            {"images": [png(picture(0)), b"garbage", png(picture(1))]},
            "train: image 1 is not: cannot identify",
        ),
        ([0, 1, 0], {"images": [png(picture(0)), None, png(picture(1))]}, "got NoneType for .*image 1"),
        ([0, 1, 0], {"images": [png(picture(0)), png(picture(0))[:90], png(picture(1))]}, "train: image 1 is not"),
        ([0, 1], {"images": [png(picture(0)), png(picture(0, (9, 8)))]}, "got 8x8 and, for .*image 1, 9x8: give image"),
        ([0, 1], {"images": [png(Image.new("I;16", (8, 8)))] * 2}, "8 bits for each channel; .*has 16: convert"),
    ],
)
def test_tables_that_do_not_do(tmp_path, labels, settings, message):
    write_parquet(tmp_path / "train.parquet", labels, **settings)
    write_parquet(tmp_path / "test.parquet", [0, 1])
    with pytest.raises(DataError, match=message):
        load(f"parquet:{tmp_path}")


def test_test_labels_beyond_the_training_classes(tmp_path):
    write_parquet(tmp_path / "train.parquet", [0, 1])
    write_parquet(tmp_path / "test.parquet", [0, 2])
    with pytest.raises(DataError, match="from 0 to 1 for its 2 classes; got 2 among the test images"):
        load(f"parquet:{tmp_path}")


def test_empty_splits(tmp_path):
    write_parquet(tmp_path / "train.parquet", [0, 1])
    write_parquet(tmp_path / "test.parquet", pa.array([], pa.int64()), images=[])
    with pytest.raises(DataError, match=r"must hold at least one; got none in the rows of .*test\.parquet"):
        load(f"parquet:{tmp_path}")


def test_image_folders(tmp_path):
    write_folder(tmp_path / "train", ["cat", "dog"])
    write_folder(tmp_path / "val", ["cat", "dog"], per_class=2)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    data = load(f"imagefolder:{tmp_path}")
    assert data.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0] * 5 + [1] * 5
    assert len(data.test) == 4
    assert data.notes == (
        f"2 classes, 10 images in {tmp_path / 'train'} and 4 images in {tmp_path / 'val'}; left unread: 1 files that "
        "are not images.",
    )


@pytest.mark.parametrize("train", ["train", "."])
def test_an_image_folder_without_test_images_gives_a_fifth(tmp_path, train):
    write_folder(tmp_path / train, ["cat", "dog"])
    data = load(f"imagefolder:{tmp_path}")
    assert sorted(data.test.labels.tolist()) == [0, 1]
    assert "a fixed fifth of every class is held out, 2 of 10" in data.notes[1]


@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("training", "testing"), ("train", "valid"), ("TRAIN", "dev"), ("train", "eval")],
)
def test_splits_have_their_usual_names_in_any_case(tmp_path, train, test):
    write_folder(tmp_path / train, ["cat", "dog"])
    write_folder(tmp_path / test, ["cat", "dog"], per_class=2)
    data = load(f"imagefolder:{tmp_path}")
    assert (data.class_names, len(data.train), len(data.test)) == (("cat", "dog"), 10, 4)
    assert data.validation is None, "the only other split is the test's"


def test_what_a_folder_holds_beside_its_splits_is_said(tmp_path):
    for split in ("train", "test", "val", "spare"):
        write_folder(tmp_path / split, ["cat", "dog"])
    (note,) = load(f"imagefolder:{tmp_path}").notes
    assert f"10 images in {tmp_path / 'val'} and 10 images in {tmp_path / 'test'}" in note
    assert f"left unread: {tmp_path / 'spare'}/." in note


def test_validation_images_beside_test_images_are_read_for_themselves(tmp_path):
    for place, (split, count) in enumerate({"train": 5, "Val": 3, "test": 2}.items()):
        write_folder(tmp_path / split, ["cat", "dog"], per_class=count)
        labels = [number % 2 for number in range(2 * count)]
        write_parquet(tmp_path / f"{split}-{place}.parquet", labels)
    for kind in ("imagefolder", "parquet"):
        data = load(f"{kind}:{tmp_path}")
        assert {name: len(images) for name, images in data.parts.items()} == {
            "training": 10,
            "validation": 6,
            "test": 4,
        }
        assert str(data) == f"{kind}:{tmp_path}: 10 training, 6 validation and 4 test images (3, 8, 8) of 2 classes"
    (tmp_path / "Val" / "dog" / "0.png").rename(tmp_path / "0.png")
    (tmp_path / "Val" / "cow").mkdir()
    (tmp_path / "0.png").rename(tmp_path / "Val" / "cow" / "0.png")
    with pytest.raises(DataError, match=r"validation images must be of the .*; got cow in validation alone"):
        load(f"imagefolder:{tmp_path}")


CSV = """file_name,label,split
b/0.png,10,train
b/1.png,9,train
b/2.png,9,train
b/3.png,10,val
a.png,9,test
"""


def write_csv(path, text=CSV):
    (path / "b").mkdir(exist_ok=True)
    for number in range(4):
        picture(number).save(path / "b" / f"{number}.png")
    picture(9).save(path / "a.png")
    (path / "list.csv").write_text(text)
    return f"csv:{path / 'list.csv'}"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_file_lists_images(tmp_path, delimiter):
    data = load(write_csv(tmp_path, "\ufeff" + CSV.replace(",", delimiter)))
    assert data.class_names == ("9", "10")
    assert data.train.labels.tolist() == [1, 0, 0]
    assert {name: len(images) for name, images in data.parts.items()} == {"training": 3, "validation": 1, "test": 1}
    assert torch.equal(data.test.pixels[0], torch.from_numpy(np.array(picture(9))).permute(2, 0, 1))
    assert data.notes == (
        "2 classes, 3 images in train, 1 images in val and 1 images in test.",
        "There are no validation images of 9.",
        "There are no test images of 10.",
    )


def test_csv_files_of_splits_and_files_without(tmp_path):
    write_csv(tmp_path)
    (tmp_path / "train.csv").write_text("Image,Class\n" + "".join(f"b/{i % 4}.png,{'xy'[i % 2]}\n" for i in range(10)))
    single = load(f"csv:{tmp_path / 'train.csv'}")
    assert (len(single.train), len(single.test), single.class_names) == (8, 2, ("x", "y"))
    (tmp_path / "test.csv").write_text("path,category\na.png,y\n")
    data = load(f"csv:{tmp_path}")
    assert (len(data.train), data.test.labels.tolist()) == (10, [1])
    assert load(f"csv:{tmp_path}", image_size=4).image_shape == (3, 4, 4)


def test_csv_images_of_gigabytes_stay_in_their_files(tmp_path, monkeypatch):
    name = write_csv(tmp_path)
    usual = load(name, image_size=4)
    monkeypatch.setattr("bcnet.data.folders.MOST_BYTES", 100)
    data = load(name, image_size=4)
    assert [str(file.relative_to(tmp_path)) for file in data.train.pixels.files] == ["b/0.png", "b/1.png", "b/2.png"]
    assert data.train.labels.tolist() == usual.train.labels.tolist()
    content = (tmp_path / "b" / "3.png").read_bytes()
    (tmp_path / "b" / "3.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"3\.png"):  # of the validation images: told before anything is trained
        load(name, image_size=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("label", "kind"), r"a column called label or class .*; got file_name, kind, split"),
        (CSV.replace("b/2.png", "b/7.png"), r"'b/7.png' in list.csv, line 4 does not: paths are relative to"),
        (CSV.replace("b/2.png", "../c.png"), r"must be in its folder.* got '\.\./c.png' in list.csv, line 4: put"),
        (CSV.replace("a.png,9", "a.png,11"), "of the classes of training; got '11' in list.csv, line 6"),
        (CSV.replace("b/2.png,9", "b/2.png,"), r"a file and a class; got 'b/2.png', '', 'train' in list.csv, line 4"),
        (CSV.replace("train", "other"), r"must have rows for training; got the splits other, val, test"),
        (CSV.replace(",10,train", ",9,train"), r"two classes or more; got only 9 for training"),
        (CSV.replace("b/2.png", "b\0.png"), r"'b\\x00.png' in list.csv, line 4 does not: paths are relative to"),
        (
            CSV.replace("split", '"of\ntwo lines"').replace("label", "kind"),
            r"got file_name, kind, 'of\\ntwo lines': ren",
        ),
        ("file,label\n", r"must have rows; got none"),
        ("", r"a column called file_name or .*; got nothing: rename"),
    ],
)
def test_csv_files_that_do_not_do(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load(write_csv(tmp_path, text))


def test_a_function_is_named_by_its_file(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "own_arrays.py").write_text("def digits():\n    return 'what it returns'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert imports_code("folder/own_arrays.py:digits")
    assert made_by("folder/own_arrays.py:digits") == "what it returns"


def test_csv_needs_a_file_or_a_folder_of_splits(tmp_path):
    for place, lacks in ((tmp_path, "holds none"), (tmp_path / "no.csv", "does not exist")):
        message = rf"csv:PATH takes a CSV file, or a folder with train.csv and test.csv; got .*, which {lacks}"
        with pytest.raises(DataError, match=message):
            load(f"csv:{place}")
    write_csv(tmp_path)
    with pytest.raises(
        DataError, match=r"a folder of CSV files must have train.csv and test.csv; got list.csv: give one"
    ):
        load(f"csv:{tmp_path}")
    (tmp_path / "list.csv").write_bytes(b"file,label\n\xff.png,a\n")
    with pytest.raises(DataError, match=r"takes a CSV file in UTF-8; .* could not be read"):
        load(f"csv:{tmp_path / 'list.csv'}")


def tables(**counts):
    features = datasets.Features({"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=["cat", "dog"])})
    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict(
                {"img": [picture(i) for i in range(count)], "fine_label": [i % 2 for i in range(count)]}, features
            )
            for split, count in counts.items()
        }
    )


def test_tables_of_the_hub_in_memory(tmp_path):
    found = given_data(tables(train=6, validation=4, test=2), None)
    assert {name: len(images) for name, images in found.parts.items()} == {"training": 6, "validation": 4, "test": 2}
    assert found.class_names == ("cat", "dog")
    assert torch.equal(found.validation.pixels[3], torch.from_numpy(np.array(picture(3))).permute(2, 0, 1))
    parts = tables(train=6, validation=4, test=2)
    same = given_data((parts["train"], parts["validation"], parts["test"]), None)
    assert [images.digest() for images in same.parts.values()] == [i.digest() for i in found.parts.values()]
    alone = given_data(parts["train"], None)
    assert len(alone.train) + len(alone.test) == 6
    pair = given_data((parts["train"], parts["validation"]), 4)
    assert (len(pair.test), pair.validation, pair.image_shape) == (4, None, (3, 4, 4))
    picture(0).save(tmp_path / "0.png")
    rows = {"image": [str(tmp_path / "0.png")] * 4, "label": [0, 1, 0, 1]}
    files = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    assert len(given_data({"train": files, "test": files}, None).train) == 4
    with pytest.raises(DataError, match=r"tables, train needs a column called image or img .*; got pixels, label"):
        given_data({"train": files.rename_column("image", "pixels"), "test": files}, None)


def test_a_transform_of_a_table_is_used():
    def halve(batch):
        return {**batch, "img": [image.resize((4, 4)) for image in batch["img"]]}

    parts = tables(train=6, test=2)
    assert given_data(parts, None).image_shape == (3, 8, 8)
    parts.set_transform(halve)
    assert given_data(parts, None).image_shape == (3, 4, 4)


def test_items_may_be_dicts():
    items = [{"pixel_values": picture(i), "labels": i % 2, "id": i} for i in range(6)]
    data = DataSet.from_datasets(items[:3], items[3:4], validation=items[4:])
    pairs = DataSet.from_datasets([(i["pixel_values"], i["labels"]) for i in items[:3]], [(picture(3), 1)])
    assert data.train.digest() == pairs.train.digest()
    assert len(data.validation) == 2
    with pytest.raises(DataError, match=r"mine, train: image 1 needs a column called label or .*; got image: rename"):
        DataSet.from_datasets([items[0], {"image": picture(1)}], items[3:], name="mine")


def test_a_wrapping_folder_is_refused_with_the_one_to_give(tmp_path):
    write_folder(tmp_path / "animals", ["cat", "dog"])
    with pytest.raises(DataError, match=rf"two classes or more; got only 'animals' .*give '{tmp_path / 'animals'}'"):
        load(f"imagefolder:{tmp_path}")
    write_folder(tmp_path / "one", ["cat"])
    with pytest.raises(DataError, match=r"got only 'cat' .*give the folder that holds all classes"):
        load(f"imagefolder:{tmp_path / 'one'}")


def test_links_are_followed_once(tmp_path):
    write_folder(tmp_path / "camera", ["cat", "dog"])
    write_folder(tmp_path / "data" / "train", ["cat", "dog"], per_class=2)
    write_folder(tmp_path / "data" / "test", ["cat", "dog"])
    for name in ("cat", "dog"):
        (tmp_path / "data" / "train" / name / "camera").symlink_to(tmp_path / "camera" / name)
        (tmp_path / "camera" / name / "back").symlink_to(tmp_path / "data" / "train" / name)
    data = load(f"imagefolder:{tmp_path / 'data'}")
    assert (len(data.train), len(data.test)) == (14, 10)


def test_two_folders_for_one_split_are_refused(tmp_path):
    for name in ("train", "Train"):
        write_folder(tmp_path / name, ["cat", "dog"])
    with pytest.raises(DataError, match=r"different names; got Train and train in"):
        load(f"imagefolder:{tmp_path}")


@pytest.mark.parametrize("names", [("train-00000-of-00001", "val-00000-of-00001"), ("train/0000", "test/0000")])
def test_parquet_splits_are_named_by_file_or_folder(tmp_path, names):
    for name, labels in zip(names, ([0, 1, 0, 1], [0, 1]), strict=True):
        write_parquet(tmp_path / f"{name}.parquet", labels)
    data = load(f"parquet:{tmp_path}")
    assert (len(data.train), len(data.test)) == (4, 2)
    assert "2 classes, 4 images in train and 2 images in" in data.notes[0]


def test_parquet_files_of_two_configurations_are_refused(tmp_path):
    for configuration in ("plain", "augmented"):
        write_parquet(tmp_path / configuration / "train-0.parquet", [0, 1])
    with pytest.raises(DataError, match=r"one configuration; got those of 2 .*give '.*augmented' or '.*plain'"):
        load(f"parquet:{tmp_path}")


def test_images_of_any_size_are_resized_and_cropped(tmp_path):
    write_folder(tmp_path / "train", ["cat", "dog"], size=(30, 17))
    write_folder(tmp_path / "test", ["cat", "dog"], size=(12, 90))
    assert load(f"imagefolder:{tmp_path}", image_size=16).image_shape == (3, 16, 16)
    with pytest.raises(DataError, match="give image_size"):
        load(f"imagefolder:{tmp_path}")


def test_the_centre_is_kept(tmp_path):
    array = np.zeros((8, 24, 3), dtype=np.uint8)
    array[:, 8:16] = 255
    for folder in (tmp_path / split / name for split in ("train", "test") for name in "ab"):
        folder.mkdir(parents=True)
        Image.fromarray(array).save(folder / "0.png")
    assert load(f"imagefolder:{tmp_path}", image_size=8).train.pixels.min() == 255


def test_images_are_grey_only_if_all_are(tmp_path):
    for split in ("train", "test"):
        write_folder(tmp_path / split, ["a", "c"], mode="L")
    assert load(f"imagefolder:{tmp_path}").image_shape == (1, 8, 8)
    assert load(f"imagefolder:{tmp_path}").augmentation.flip is False
    for split in ("train", "test"):
        write_folder(tmp_path / split, ["b"])
    assert load(f"imagefolder:{tmp_path}").image_shape == (3, 8, 8)


def test_palette_images_with_transparency(tmp_path):
    for folder in (tmp_path / split / name for split in ("train", "test") for name in "ab"):
        folder.mkdir(parents=True)
        picture(0).quantize(4).save(folder / "0.png", transparency=b"\0\1\2\3")
    assert load(f"imagefolder:{tmp_path}").image_shape == (3, 8, 8)


def test_a_test_folder_may_lack_a_class(tmp_path):
    write_folder(tmp_path / "train", ["cat", "cow", "dog"])
    write_folder(tmp_path / "test", ["dog"])
    data = load(f"imagefolder:{tmp_path}")
    assert data.class_names == ("cat", "cow", "dog")
    assert data.test.labels.tolist() == [2] * 5
    assert data.notes[1] == "There are no test images of cat, cow."


def test_image_folder_errors(tmp_path):
    with pytest.raises(DataError, match="takes a folder; got '/no/such/place', which is not one"):
        load("imagefolder:/no/such/place")
    with pytest.raises(DataError, match="a subfolder for each class; got none in"):
        load(f"imagefolder:{tmp_path}")
    write_folder(tmp_path / "test", ["cat", "dog"])
    with pytest.raises(DataError, match="must have train/ beside it"):
        load(f"imagefolder:{tmp_path}")
    write_folder(tmp_path / "train", ["cat", "cow"])
    with pytest.raises(DataError, match="test images must be of the classes of training; got dog in test alone"):
        load(f"imagefolder:{tmp_path}")
    (tmp_path / "train" / "elk").mkdir()
    with pytest.raises(DataError, match=r"every class must have images; got none in .* for elk"):
        load(f"imagefolder:{tmp_path}")


def test_an_unreadable_file_is_named(tmp_path):
    write_folder(tmp_path / "train", ["cat", "dog"])
    write_folder(tmp_path / "test", ["cat", "dog"])
    (tmp_path / "train" / "cat" / "3.png").write_bytes(b"garbage")
    with pytest.raises(DataError, match=r"train/cat/3\.png is not: cannot identify"):
        load(f"imagefolder:{tmp_path}")


@pytest.mark.parametrize(("name", "repository"), [("cifar10", "uoft-cs/cifar10"), ("hf:me/mine", "me/mine")])
def test_the_hub(monkeypatch, name, repository):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    split = datasets.Dataset.from_dict(
        {"img": [picture(i) for i in range(4)], "label": [0, 1, 0, 1]}, features=features
    )
    asked = []

    def give(repository):
        asked.append(repository)
        return datasets.DatasetDict({"train": split, "test": split})

    monkeypatch.setattr(datasets, "load_dataset", give)
    data = load(name)
    assert asked == [repository]
    assert data.name == name
    assert data.class_names == ("cat", "dog")
    assert torch.equal(data.test.pixels[3], torch.from_numpy(np.array(picture(3))).permute(2, 0, 1))


def test_a_hub_out_of_reach_says_how_to_go_on(monkeypatch):
    def fail(repository):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError, match=r"\(uoft-cs/cifar10\).*ConnectionError: no route.*use parquet:PATH"):
        load("cifar10")


def test_a_hub_set_without_training_images(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda repository: datasets.DatasetDict({"test": None}))
    with pytest.raises(DataError, match="needs a split called train; got test"):
        load("hf:me/mine")


@pytest.mark.slow
def test_cifar10_as_parquet():
    if not CIFAR10.is_dir():
        pytest.skip(f"the parquet files of CIFAR-10 are not at {CIFAR10}")
    data = load(f"parquet:{CIFAR10}")
    assert data.train.pixels.shape == (50_000, 3, 32, 32)
    assert data.train.labels.bincount().tolist() == [5000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    assert data.augmentation == Augmentation(padding=4, flip=True)
    assert data.normaliser.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.002)  # of the original pixels
    assert data.normaliser.std == pytest.approx((0.247, 0.243, 0.261), abs=0.004)


@pytest.mark.parametrize("name", ["cifar10", "parquet:{place}", "hf:somebody/something"])
def test_a_package_of_an_extra_is_named_where_it_is_missing(name, tmp_path, monkeypatch):
    (tmp_path / "train.parquet").write_bytes(b"never read")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"datasets is not installed: run `pip install 'bcnet\[hub\]'`"):
        load(name.format(place=tmp_path))
