"""The paper's networks with their recipes, and the scales at which its experiments can be run.

At the scale "paper" everything is as in the paper. At the others one small network stands in for all of the paper's
networks, on data that everybody has: budgets keep their ratio to the original network, training is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bcnet.methods import PAPER
from bcnet.models import ModelSpec, create
from bcnet.train import load_recipe


@dataclass(frozen=True)
class Network:
    """A network on a data set: its name in the paper, and what `bcnet search` would be told.

    `data` is "imagenet", "cifar10" or "digits". `macs` counts the original's; for a `widened` supernet, which searches
    at 1.0 times need, the original is `original`.
    """

    name: str
    model: str
    data: str
    recipe: str
    classes: int
    image_size: int
    macs: int
    original: str = ""

    @property
    def widened(self) -> bool:
        """Whether this is a wider supernet for searches at 1.0 times."""
        return bool(self.original)

    def spec(self) -> ModelSpec:
        """How to make the network."""
        channels = 1 if self.data == "digits" else 3
        return create(self.model, self.classes, in_channels=channels, image_size=self.image_size)


_WIDE = "studies.paper.wide"  # the module of the widened networks, as --model names one


def _imagenet(name: str, model: str, recipe: str, macs: int, original: str = "") -> Network:
    return Network(name, model, "imagenet", f"{recipe}-imagenet", 1000, 224, macs, original)


RESNET50 = _imagenet("ResNet50", "torchvision:resnet50", "resnet50", 4_089_184_256)
RESNET34 = _imagenet("ResNet34", "torchvision:resnet34", "resnet50", 3_663_761_408)
RESNET18 = _imagenet("ResNet18", "torchvision:resnet18", "resnet50", 1_814_073_344)
MOBILENETV2 = _imagenet("MobileNetV2", "torchvision:mobilenet_v2", "mobilenet_v2", 300_774_272)
EFFICIENTNET = _imagenet("EfficientNet-B0", "torchvision:efficientnet_b0", "efficientnet_b0", 385_814_752)
PROXYLESSNAS = _imagenet("ProxylessNAS", "proxylessnas_mobile", "efficientnet_b0", 320_427_584)
WIDE_MOBILENETV2 = _imagenet(
    "MobileNetV2", f"{_WIDE}:mobilenet_v2", "mobilenet_v2", MOBILENETV2.macs, MOBILENETV2.model
)
WIDE_EFFICIENTNET = _imagenet(
    "EfficientNet-B0", f"{_WIDE}:efficientnet_b0", "efficientnet_b0", EFFICIENTNET.macs, EFFICIENTNET.model
)
WIDE_PROXYLESSNAS = _imagenet(
    "ProxylessNAS", f"{_WIDE}:proxylessnas_mobile", "efficientnet_b0", PROXYLESSNAS.macs, PROXYLESSNAS.model
)
AUTOSLIM_MOBILENETV2 = _imagenet(  # what AutoSlim's widths are for
    "MobileNetV2", f"{_WIDE}:autoslim_mobilenet_v2", "mobilenet_v2", MOBILENETV2.macs, MOBILENETV2.model
)
CIFAR_MOBILENETV2 = Network(
    "MobileNetV2 (CIFAR-10)", "mobilenetv2", "cifar10", "mobilenetv2-cifar10", 10, 32, 296_498_432
)
VGG19 = Network("VGGNet", "vgg19", "cifar10", "vgg19-cifar10", 10, 32, 398_136_320)

RESNET20 = Network("ResNet-20", "resnet20", "cifar10", "digits", 10, 16, 10_203_776)
WIDE_RESNET20 = Network("ResNet-20", f"{_WIDE}:resnet20", "cifar10", "digits", 10, 16, RESNET20.macs, RESNET20.model)
DIGITS = Network("digits ResNet", "resnet_digits", "digits", "digits", 10, 8, 1_189_344)
WIDE_DIGITS = Network("digits ResNet", f"{_WIDE}:resnet_digits", "digits", "digits", 10, 8, DIGITS.macs, DIGITS.model)


_CIFAR16 = (RESNET20, WIDE_RESNET20)
_DIGITS = (DIGITS, WIDE_DIGITS)


@dataclass(frozen=True)
class Scale:
    """The size at which a study is run; numbers of epochs left out are the recipe's.

    `stand_in` takes the place of every network, widened where that is. `random_widths` and `random_epochs` are those of
    the Random baseline.
    """

    name: str
    stand_in: tuple[Network, Network] | None = None
    epochs: int | None = None
    supernet_epochs: int | None = None
    population: int = 40
    generations: int = 50
    random_widths: int = 20
    random_epochs: int = 50

    @property
    def search(self) -> dict[str, Any]:
        """Settings of a search: the paper's own at its scale, elsewhere what the rows were computed with."""
        if self.name != "paper":
            return {"macs_from": 0.0, "first_generation": "prior"}
        return dict(PAPER)

    def network(self, network: Network) -> Network:
        """What is trained for the paper's network."""
        return network if self.stand_in is None else self.stand_in[network.widened]

    def final_epochs(self, network: Network) -> int:
        """Epochs of a network trained from scratch."""
        return self.epochs or load_recipe(self.network(network).recipe).epochs

    def training_epochs(self, network: Network, share: float) -> int:
        """Epochs of a supernet, `share` times the usual ones."""
        usual = self.supernet_epochs or load_recipe(self.network(network).recipe).epochs
        return max(1, round(share * usual))

    def searching_generations(self, share: float) -> int:
        """Generations of a search, `share` times the usual ones."""
        return max(1, round(share * self.generations))


SCALES = {
    scale.name: scale
    for scale in (
        Scale("paper"),
        Scale("cifar16", _CIFAR16, epochs=5, supernet_epochs=4, generations=10, random_widths=4, random_epochs=1),
        Scale("digits", _DIGITS, random_widths=5, random_epochs=15),
        Scale("quick", _DIGITS, 2, 1, population=4, generations=2, random_widths=2, random_epochs=1),
    )
}
