"""A narrowed network in timm's own training: registered under a name, then made and trained like any of its models.

    pip install 'bcnet[timm]'
    python examples/timm_training.py runs/timm/architecture.json photos
    python examples/timm_training.py runs/timm/architecture.json photos --quick

`architecture.json` is what a run of `bcnet search --model timm:resnet10t` leaves. `train.py` of timm's repository takes
the network in the same way: with this file beside it, and the variable ARCHITECTURE set,

    python -c "import timm_training, runpy; runpy.run_path('train.py', run_name='__main__')" photos --model narrowed ...
"""

import argparse
import os
from pathlib import Path

import timm
import torch
from timm.data import create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import register_model
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2

import bcnet

MODEL = os.environ.get("MODEL", "resnet10t")  # of timm: what was searched


@register_model
def narrowed(pretrained: bool = False, **options) -> torch.nn.Module:
    """The network that the file in the variable ARCHITECTURE describes."""
    if pretrained:
        raise ValueError("a narrow network has no weights to be fetched: load those of its run")
    wanted = {name: options[name] for name in ("num_classes", "in_chans") if options.get(name) is not None}
    return bcnet.supernet.rebuild(Path(os.environ["ARCHITECTURE"]), lambda: timm.create_model(MODEL, **wanted))


def main() -> None:
    options = arguments()
    os.environ["ARCHITECTURE"] = options.architecture
    torch.manual_seed(0)
    folder = create_dataset("image_folder", root=options.images)
    model = timm.create_model("narrowed", num_classes=len(folder.reader.class_to_idx))
    size = options.image_size
    data = resolve_data_config({"input_size": (3, size, size)}, model=model)
    loader = create_loader(
        folder, data["input_size"], 16, is_training=True, use_prefetcher=False, num_workers=0,
        mean=data["mean"], std=data["std"], device=torch.device("cpu"),
    )  # fmt: skip
    epochs = 1 if options.quick else 20
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.05, weight_decay=1e-4, momentum=0.9)
    schedule, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=epochs)
    loss_of = LabelSmoothingCrossEntropy(0.1)
    for epoch in range(epochs):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        schedule.step(epoch + 1)
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(loader):.3f}")
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{type(model).__name__} of {parameters:,} parameters, trained by timm {timm.__version__}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a narrowed timm network with timm's own parts.")
    parser.add_argument("architecture", help="architecture.json of a run")
    parser.add_argument("images", help="folder of images, one subfolder for each class")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one epoch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
