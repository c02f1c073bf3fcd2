"""A Hugging Face network narrowed, trained by the Trainer of transformers, saved, and loaded somewhere else.

    pip install 'bcnet[huggingface]'
    python examples/hugging_face_trainer.py runs/hugging
    python examples/hugging_face_trainer.py runs/try --quick

The narrow network is a `ResNetForImageClassification` as before, with its own loss and its own outputs, so that Trainer
sees no difference. A `config.json` cannot say the widths of single layers: `architecture.json` does, for
`bcnet.supernet.rebuild`.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch.nn import functional
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments, set_seed

import bcnet


def make_network() -> ResNetForImageClassification:
    """A ResNet of three stages for digits."""
    stages = {"embedding_size": 16, "hidden_sizes": [16, 32, 64], "depths": [1, 1, 1], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(num_channels=1, num_labels=10, **stages))


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Images (n, 1, 32, 32) as uint8 with their labels, for training and for the test."""
    source = load_digits()
    small = torch.tensor(source.images)[:, None] * (255 / 16)
    images = functional.interpolate(small, scale_factor=4, mode="bilinear").round().to(torch.uint8)
    labels = torch.tensor(source.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    (training, test) = order.split([1437, 360])
    return (images[training], labels[training]), (images[test], labels[test])


class Examples(torch.utils.data.Dataset):
    """Rows as Trainer takes them."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images.float() / 255, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def main() -> None:
    options = arguments()
    folder, quick = Path(options.run), options.quick
    training, test = digits()
    # Widths found by short trainings of some tens of networks: no supernet is needed.
    found = bcnet.search(
        make_network,
        bcnet.DataSet.from_tensors(training, test, name="digits, 32 x 32"),
        budget=bcnet.Budget(macs=0.5),
        run_dir=folder / "search",
        training=bcnet.Recipe(lr=0.1, batch_size=64, epochs=1 if quick else 15, precision="fp32"),
        method=bcnet.Trainings(effort="small"),
        options={"threads": 1},
        until="widths",
    )

    original = make_network()
    space = bcnet.WidthSpace.trace(original, torch.zeros(2, 1, 32, 32))
    network = bcnet.supernet.build(original, space, found.widths)
    set_seed(0)
    trainer = Trainer(
        network,
        TrainingArguments(
            output_dir=str(folder / "trainer"),
            num_train_epochs=1 if quick else 15,
            per_device_train_batch_size=64,
            learning_rate=2e-3,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Examples(*training),
        eval_dataset=Examples(*test),
        compute_metrics=lambda told: {"accuracy": float((told.predictions.argmax(1) == told.label_ids).mean())},
    )
    trainer.train()
    accuracy = 100 * trainer.evaluate()["eval_accuracy"]

    document = bcnet.supernet.describe(original, space, found.widths, reference="hugging_face_trainer:make_network")
    (folder / "architecture.json").write_text(json.dumps(document))
    save_file(network.state_dict(), folder / "model.safetensors")

    elsewhere = bcnet.supernet.rebuild(folder / "architecture.json", make_network).eval()
    elsewhere.load_state_dict(load_file(folder / "model.safetensors"))
    with torch.no_grad():
        images = Examples(*test).images
        same = torch.equal(elsewhere(images).logits, network.eval()(images).logits)
    print(f"{type(network).__name__} of widths {found.widths}: {space.cost(found.widths).macs:,} multiply-adds")
    print(f"test accuracy {accuracy:.2f} %, loaded elsewhere the same: {same}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Narrow a network of transformers, and train it with its Trainer.")
    parser.add_argument("run", help="folder for search, weights and architecture")
    parser.add_argument("--quick", action="store_true", help="one epoch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
