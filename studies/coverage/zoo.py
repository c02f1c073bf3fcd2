"""The networks that coverage is measured on: torchvision's classification CNNs and ViT, and timm's CNN families."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass

import torch
from torch import nn

_TORCHVISION = """
alexnet vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn resnet18 resnet34 resnet50 resnet101 resnet152
wide_resnet50_2 wide_resnet101_2 resnext50_32x4d resnext101_32x8d resnext101_64x4d regnet_x_400mf regnet_x_800mf
regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf
regnet_y_3_2gf regnet_y_8gf regnet_y_16gf regnet_y_32gf densenet121 densenet161 densenet169 densenet201 googlenet
inception_v3 squeezenet1_0 squeezenet1_1 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large shufflenet_v2_x0_5
shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l convnext_tiny convnext_small convnext_base
convnext_large vit_b_16 swin_t
""".split()  # fmt: skip  # noqa: SIM905
_TIMM = """
resnet10t resnet26d seresnet50 ecaresnet26t skresnet18 resnest14d res2net50_26w_4s resnext26ts regnetv_040
nf_regnet_b0 nf_resnet26 eca_nfnet_l0 resnetv2_50 mobilenetv4_conv_small_050 mobileone_s0 mobilenet_edgetpu_100
tf_efficientnet_lite0 fbnetc_100 spnasnet_100 ghostnet_050 ghostnetv2_100 repghostnet_050 lcnet_035 tinynet_e
semnasnet_075 hardcorenas_a mixnet_s rexnet_100 dla34 dpn48b hrnet_w18_small inception_v4 inception_resnet_v2
xception41 selecsls42b vovnet39a ese_vovnet19b_dw cspresnet50 cspdarknet53 darknet53 convnextv2_atto
convmixer_768_32 repvgg_a0 hgnet_tiny hgnetv2_b0 gernet_s fasternet_t0 starnet_s1 rdnet_tiny inception_next_atto
tresnet_m repvit_m0_9 poolformer_s12 nasnetalarge pnasnet5large
""".split()  # fmt: skip  # noqa: SIM905
_TRANSFORMERS = ("timm:edgenext_xx_small", "timm:mobilevit_xxs")
_OPTIONS = {
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False},
    "vit_b_16": {"image_size": 64},
}
_SIZES = {
    "swin_t": 64,
    "googlenet": 96,
    "inception_v3": 299,
    "inception_v4": 96,
    "inception_resnet_v2": 96,
    "nasnetalarge": 96,
    "pnasnet5large": 96,
}


@dataclass(frozen=True)
class Entry:
    """A network by its library and name, and the height and width of the input it is traced with."""

    name: str
    size: int = 64

    def build(self) -> nn.Module:
        """A new network with random weights."""
        library, _, name = self.name.partition(":")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if library == "timm":
                network: nn.Module = importlib.import_module("timm").create_model(name, pretrained=False)
            else:
                make = getattr(importlib.import_module("torchvision.models"), name)
                network = make(weights=None, **_OPTIONS.get(name, {}))
        return network

    def example(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A batch of two random images."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn(2, 3, self.size, self.size, generator=generator).to(dtype)


def _entry(name: str) -> Entry:
    return Entry(name, _SIZES.get(name.partition(":")[2], 64))


TORCHVISION = tuple(_entry(f"torchvision:{name}") for name in _TORCHVISION)
TIMM = tuple(_entry(f"timm:{name}") for name in _TIMM)
TRANSFORMERS = tuple(_entry(name) for name in _TRANSFORMERS)
CNNS = TORCHVISION + TIMM
QUICK = (_entry("torchvision:squeezenet1_1"), _entry("timm:ghostnet_050"))
