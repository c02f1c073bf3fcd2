"""What is true of the computer and not of the method: devices, precision, threads, memory, disk."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcnet.machine.devices import device_name

__all__ = ["device_name"]


def __getattr__(name: str) -> Any:
    # torch is imported by those who ask for its devices: `bcnet status` asks for memory and disk alone.
    if name in __all__:
        from bcnet.machine import devices

        return getattr(devices, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
