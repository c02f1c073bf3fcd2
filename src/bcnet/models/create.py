"""Models by name: built-in networks, torchvision's, timm's, or the user's own factory.

Optional packages are imported only when a name requires them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from bcnet.errors import ModelError
from bcnet.importing import import_object
from bcnet.models.channel_bench import channel_bench_mobilenet, channel_bench_resnet
from bcnet.models.mobile import mobilenetv2, proxylessnas_mobile
from bcnet.models.resnet import resnet20, resnet56, resnet_digits
from bcnet.models.vgg import vgg19, vgg19_quarter, vgg_digits

_OURS: Mapping[str, tuple[Callable[..., nn.Module], tuple[int, int, int]]] = {
    "vgg19": (vgg19, (3, 32, 32)),
    "vgg19_quarter": (vgg19_quarter, (3, 32, 32)),
    "mobilenetv2": (mobilenetv2, (3, 32, 32)),
    "resnet20": (resnet20, (3, 32, 32)),
    "resnet56": (resnet56, (3, 32, 32)),
    "channel_bench_mobilenet": (channel_bench_mobilenet, (3, 32, 32)),
    "channel_bench_resnet": (channel_bench_resnet, (3, 32, 32)),
    "proxylessnas_mobile": (proxylessnas_mobile, (3, 224, 224)),
    "resnet_digits": (resnet_digits, (1, 8, 8)),
    "vgg_digits": (vgg_digits, (1, 20, 20)),
}
NAMES = tuple(_OURS)
_IMAGENET_SIZE = 224
_FORMS = "a name of ours, torchvision:NAME, timm:NAME, package.module:factory, or FILE.py:factory in this folder"


@dataclass(frozen=True)
class ModelSpec:
    """A network by name: its factory and its input size.

    `factory()` returns a new network with random weights; `input_size` is `(channels, height, width)`.
    """

    name: str
    factory: Callable[[], nn.Module]
    input_size: tuple[int, int, int]

    def build(self) -> nn.Module:
        """Return a new network.

        Raises:
            ModelError: the factory failed, or did not return an `nn.Module`.
        """
        try:
            model = self.factory()
        except Exception as error:
            raise ModelError(
                f"the factory of model {self.name!r} has to run; it failed with {type(error).__name__}: {error}"
            ) from error
        if not isinstance(model, nn.Module):
            raise ModelError(
                f"the factory of model {self.name!r} has to return a torch.nn.Module; got {type(model).__name__}: "
                "return the network itself"
            )
        return model


def create(
    name: str, num_classes: int | None = None, *, in_channels: int | None = None, image_size: int | None = None
) -> ModelSpec:
    """Return the network called `name`: one of `NAMES`, `torchvision:NAME`, `timm:NAME`, or `package.module:factory`.

    None stands for the network's usual value (10 or 1000 classes, 3 channels, 32 or 224 pixels). The user's factory
    gets `num_classes` and `in_channels` only if its signature has them; its usual channels are the default there.

    Raises:
        ModelError: an unknown or malformed name, a missing package, a module that cannot be imported, or an unsupported
            number of channels.
    """
    for setting, value in (("num_classes", num_classes), ("in_channels", in_channels), ("image_size", image_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ModelError(f"{setting} must be a positive int; got {value!r}")
    package, colon, member = name.partition(":")
    if not colon:
        factory, usual = _ours(name)
    elif package == "torchvision":
        factory, usual = _torchvision(member, in_channels)
    elif package == "timm":
        factory, usual = _timm(member)
    else:
        factory = import_object(name, what="model", forms=_FORMS, error=ModelError)
        usual = (_usual_channels(factory), _IMAGENET_SIZE, _IMAGENET_SIZE)
    height, width = (image_size, image_size) if image_size is not None else usual[1:]
    channels = in_channels if in_channels is not None else usual[0]
    settings = {"num_classes": num_classes, "in_channels": in_channels}
    # timm has its own name for the number of input channels.
    if package == "timm" and colon:
        settings["in_chans"] = settings.pop("in_channels")
    given = {key: value for key, value in settings.items() if value is not None and _accepts(factory, key)}
    return ModelSpec(name, partial(factory, **given), (channels, height, width))


def imports_code(name: str) -> bool:
    """Return whether `create` would import code other than this library's, torchvision's or timm's."""
    package, colon, _ = name.partition(":")
    return bool(colon) and package not in ("torchvision", "timm")


def _ours(name: str) -> tuple[Callable[..., nn.Module], tuple[int, int, int]]:
    if name not in _OURS:
        raise ModelError(f"a model must be {_FORMS}; got {name!r}{_suggest(name, NAMES)}; ours are {', '.join(NAMES)}")
    return _OURS[name]


def _torchvision(member: str, in_channels: int | None) -> tuple[Callable[..., nn.Module], tuple[int, int, int]]:
    models = _optional("torchvision", "torchvision.models")
    known = models.list_models(module=models)
    _check_member("torchvision", member, known)
    if in_channels not in (None, 3):
        raise ModelError(
            f"torchvision's networks take 3 input channels; got {in_channels} for {member!r}: use timm:NAME, which "
            "takes any number, or a factory of your own"
        )
    # these two initialise their weights themselves, and warn by default
    settings = {"init_weights": True} if member in ("googlenet", "inception_v3") else {}
    size = 299 if member == "inception_v3" else _IMAGENET_SIZE

    def factory(num_classes: int = 1000) -> nn.Module:
        model: nn.Module = models.get_model(member, weights=None, num_classes=num_classes, **settings)
        return model

    return factory, (3, size, size)


def _timm(member: str) -> tuple[Callable[..., nn.Module], tuple[int, int, int]]:
    timm = _optional("timm", "timm")
    _check_member("timm", member, timm.list_models())
    channels, height, width = timm.get_pretrained_cfg(member).input_size

    def factory(num_classes: int = 1000, in_chans: int = channels) -> nn.Module:
        model: nn.Module = timm.create_model(member, pretrained=False, num_classes=num_classes, in_chans=in_chans)
        return model

    return factory, (channels, height, width)


def _usual_channels(factory: Callable[..., Any]) -> int:
    try:
        parameter = inspect.signature(factory).parameters.get("in_channels")
    except (TypeError, ValueError):  # some built-in callables have no signature
        return 3
    return parameter.default if parameter is not None and isinstance(parameter.default, int) else 3


def _accepts(factory: Callable[..., Any], setting: str) -> bool:
    """Return whether the factory accepts the keyword.

    `**kwargs` counts for the number of classes, which is often passed on.
    """
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # some built-in callables have no signature
        return False
    if setting in parameters:
        return parameters[setting].kind is not inspect.Parameter.POSITIONAL_ONLY
    return setting == "num_classes" and any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _optional(package: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a build that does not match torch raises RuntimeError, not ImportError
        raise ModelError(
            f"models named {package}:NAME need the package {package}; importing it failed with "
            f"{type(error).__name__}: {error}: {_install_hint(error, package)}"
        ) from error


def _install_hint(error: Exception, package: str) -> str:
    if "torchvision::" in str(error):  # an operator that exists in a build for this torch
        return "torch and torchvision are of different builds: install both anew, in one command and from one place"
    return f"run `pip install {package}`"


def _check_member(package: str, member: str, known: list[str]) -> None:
    if member not in known:
        raise ModelError(
            f"{package}:NAME takes one of {package}'s {len(known)} models; got {member!r}{_suggest(member, known)}; "
            f"there are {', '.join(known[:8])} and so on"
        )


def _suggest(name: str, known: list[str] | tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=3)
    return f" (nearest: {', '.join(near)})" if near else ""
