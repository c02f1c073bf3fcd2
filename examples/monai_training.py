"""A MONAI network narrowed inside MONAI's own trainer: its loss, its metric, its engine.

    pip install monai pytorch-ignite
    python examples/monai_training.py runs/monai
    python examples/monai_training.py runs/try --quick

The supernet takes the place of the network in `SupervisedTrainer`; only the update of an iteration is ours. The images
are MONAI's synthetic ones: circles on noise, to be segmented.
"""

import argparse
import logging
from pathlib import Path

import numpy as np
import torch
from monai.data import DataLoader, Dataset, create_test_image_2d
from monai.engines import SupervisedTrainer
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.utils import set_determinism
from torch import nn

import bcnet

SIDE = 32


def make() -> UNet:
    return UNet(2, 1, 2, channels=(16, 32, 64), strides=(2, 2), num_res_units=1, norm="batch")


def images(count: int, seed: int) -> DataLoader:
    """Batches of {"image": (batch, 1, 32, 32), "label": the same, 1 in a circle}."""
    state = np.random.RandomState(seed)
    items = []
    for _ in range(count):
        picture, mask = create_test_image_2d(SIDE, SIDE, num_objs=3, rad_max=7, noise_max=1.0, random_state=state)
        items.append({"image": torch.tensor(picture[None]).float(), "label": torch.tensor(mask[None] > 0).long()})
    return DataLoader(Dataset(items), batch_size=16, shuffle=seed == 0)


def trainer(network: nn.Module, loader: DataLoader, epochs: int, update=None) -> SupervisedTrainer:
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    return SupervisedTrainer(
        torch.device("cpu"), epochs, loader, network, optimizer, loss, iteration_update=update, amp=False
    )


def dice(network: nn.Module, loader: DataLoader) -> float:
    """The mean Dice of the circles, in percent."""
    metric = DiceMetric(include_background=False)
    with torch.no_grad():
        for batch in loader:
            found = network(batch["image"]).argmax(dim=1)
            metric(*(nn.functional.one_hot(mask, 2).movedim(-1, 1) for mask in (found, batch["label"][:, 0])))
    return 100 * float(metric.aggregate())


def main() -> None:
    options = arguments()
    logging.getLogger("ignite").setLevel(logging.WARNING)
    set_determinism(0)
    counts, epochs = ((32, 16), 1) if options.quick else ((512, 128), 20)
    training, held_out, test = images(counts[0], 0), images(counts[1], 1), images(counts[1], 2)

    model = make()
    space = bcnet.WidthSpace.trace(model, torch.zeros(2, 1, SIDE, SIDE))
    supernet = bcnet.Supernet(model, space)
    steps = bcnet.SupernetSteps(supernet)

    def update(engine, batch):
        engine.optimizer.zero_grad()
        loss = steps.backward(lambda network: engine.loss_function(network(batch["image"]), batch["label"]))
        engine.optimizer.step()
        return {"loss": loss}

    supernet.train()
    trainer(supernet, training, epochs, update).run()
    supernet.eval()

    budget, records = bcnet.Budget(macs=0.5), steps.records
    prior = bcnet.prior.learn_prior(space, records.steps, records.widths, records.losses, budget)

    def score(widths: tuple[int, ...]) -> float:
        values = []
        for side in bcnet.supernet.Side:
            with supernet.at(widths, side) as network:
                values.append(dice(network, held_out))
        return sum(values) / len(values)

    size = (4, 1) if options.quick else (20, 5)
    found = bcnet.searchers.search_widths(space, score, budget, searcher=bcnet.Evolution(*size, prior=prior))
    network = bcnet.supernet.build(make(), space, found.best.widths)
    trainer(network, training, epochs).run()
    options.run.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), options.run / "network.pt")
    cost = space.cost(found.best.widths)
    print(f"{cost.macs / space.reference.macs:.2f} of the multiply-adds, Dice {dice(network.eval(), test):.1f} %")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder to write")
    parser.add_argument("--quick", action="store_true", help="a try of seconds")
    return parser.parse_args()


if __name__ == "__main__":
    main()
