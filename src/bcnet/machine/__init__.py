"""The computer: devices, precision, threads, memory, disk."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcnet.machine.devices import device_name
    from bcnet.machine.onednn import UnitStrides

__all__ = ["UnitStrides", "device_name"]


def __getattr__(name: str) -> Any:
    # lazy, since `bcnet status` needs memory and disk only, without torch
    if name in __all__:
        from bcnet.machine import devices, onednn

        return {"UnitStrides": onednn.UnitStrides, "device_name": devices.device_name}[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
