"""The paper's networks that torchvision lacks, models by name, published widths, and detectors."""

from bcnet.models import detection, published
from bcnet.models.channel_bench import channel_bench_mobilenet, channel_bench_resnet
from bcnet.models.create import NAMES, ModelSpec, create, imports_code
from bcnet.models.detection import detector_with, one_stage
from bcnet.models.mobile import mobilenetv2, proxylessnas_mobile
from bcnet.models.resnet import resnet20, resnet56, resnet_digits
from bcnet.models.vgg import vgg19, vgg19_quarter, vgg_digits

__all__ = [
    "NAMES",
    "ModelSpec",
    "channel_bench_mobilenet",
    "channel_bench_resnet",
    "create",
    "detection",
    "detector_with",
    "imports_code",
    "mobilenetv2",
    "one_stage",
    "proxylessnas_mobile",
    "published",
    "resnet20",
    "resnet56",
    "resnet_digits",
    "vgg19",
    "vgg19_quarter",
    "vgg_digits",
]
