"""A supernet trained by Lightning: a module of one's own with a loss of its own, and the widths that it leads to.

    pip install 'bcnet[lightning]'
    python examples/lightning_loop.py runs/lightning
    python examples/lightning_loop.py runs/try --quick

Lightning keeps trainer, checkpoints and loggers; the four paths of a step are gone through by hand
(`automatic_optimization = False`). A stopped training goes on from its checkpoint with the same draws. A callback
searches when the supernet is trained.
"""

import argparse
from pathlib import Path

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import bcnet


class Net(nn.Module):
    """Two convolutions and a linear layer, for digits of 8 x 8 pixels."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(channels, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x)).mean((2, 3)))


class SupernetModule(lightning.LightningModule):
    """A supernet in the place of the model."""

    automatic_optimization = False

    def __init__(self, model: nn.Module, space: bcnet.WidthSpace, lr: float = 0.1) -> None:
        super().__init__()
        self.supernet = bcnet.Supernet(model, space)
        self.steps = bcnet.SupernetSteps(self.supernet)
        self.lr = lr

    def training_step(self, batch, _) -> None:
        images, labels = batch
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        optimizer.zero_grad()
        loss = self.steps.backward(
            lambda network: functional.cross_entropy(network(images), labels), backward=self.manual_backward
        )
        optimizer.step()
        schedule.step()
        self.log("loss", loss, prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), self.lr, momentum=0.9, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return [optimizer], [schedule]

    def on_save_checkpoint(self, checkpoint) -> None:
        checkpoint["steps"] = self.steps.state_dict()

    def on_load_checkpoint(self, checkpoint) -> None:
        self.steps.load_state_dict(checkpoint["steps"])


class WidthSearch(lightning.Callback):
    """Learns the prior from the supernet's losses once it is trained, and searches on held-out images."""

    def __init__(self, held_out: TensorDataset, budget: bcnet.Budget) -> None:
        self.held_out, self.budget = held_out, budget
        self.found: bcnet.searchers.SearchResult | None = None

    def on_fit_end(self, trainer: lightning.Trainer, module: SupernetModule) -> None:
        supernet, records = module.supernet, module.steps.records
        prior = bcnet.prior.learn_prior(supernet.space, records.steps, records.widths, records.losses, self.budget)

        def score(widths: tuple[int, ...]) -> float:
            values = []
            for side in bcnet.supernet.Side:
                with supernet.at(widths, side) as network:
                    values.append(accuracy(network, self.held_out))
            return sum(values) / 2

        searcher = bcnet.Evolution(20, 5, prior=prior)
        self.found = bcnet.searchers.search_widths(supernet.space, score, self.budget, searcher=searcher)


class NetworkModule(lightning.LightningModule):
    """The narrow network, trained as any other."""

    def __init__(self, network: nn.Module, lr: float = 0.1) -> None:
        super().__init__()
        self.network, self.lr = network, lr

    def training_step(self, batch, _) -> torch.Tensor:
        images, labels = batch
        return functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.9, weight_decay=1e-4)


def digits() -> list[TensorDataset]:
    """The images for training, to score widths by, and for the test."""
    source = load_digits()
    images, labels = torch.tensor(source.images).float()[:, None] / 16 - 0.5, torch.tensor(source.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return [TensorDataset(images[part], labels[part]) for part in order.split([1200, 300, 297])]


def accuracy(network: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        return 100 * float((network(images).argmax(1) == labels).double().mean())


def main() -> None:
    options = arguments()
    lightning.seed_everything(0)
    training, held_out, test = digits()
    loader = DataLoader(training, 64, shuffle=True, drop_last=True)
    place = {"default_root_dir": options.run, "logger": False, "accelerator": "cpu", "enable_progress_bar": False}
    epochs = 1 if options.quick else 30

    model = Net()
    space = bcnet.WidthSpace.trace(model, torch.zeros(2, 1, 8, 8))
    module = SupernetModule(model, space)
    search = WidthSearch(held_out, bcnet.Budget(macs=0.5))
    lightning.Trainer(max_epochs=epochs, callbacks=[search], **place).fit(module, loader)
    widths = search.found.best.widths
    network = bcnet.supernet.build(model, space, widths)
    lightning.Trainer(max_epochs=epochs, **place).fit(NetworkModule(network), loader)
    ratio = space.cost(widths).macs / space.reference.macs
    print(f"widths {widths} of {space.full}, {ratio:.2f}x multiply-adds")
    print(f"test accuracy {accuracy(network.eval(), test):.2f} %")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a supernet in Lightning, and search on it.")
    parser.add_argument("run", type=Path, help="folder of Lightning's checkpoints")
    parser.add_argument("--quick", action="store_true", help="one epoch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
