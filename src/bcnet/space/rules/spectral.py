"""Rules for Fourier transforms, and for complex numbers as pairs.

A transform mixes the positions of its dimensions. Other dimensions keep their labels, since each channel is transformed
independently. Channels along a transformed dimension are pinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.table import axes_of, count_nothing, out_shape, rule


@rule("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft")
def _transform_one(
    p: Propagation, node: Any, x: Labels, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Labels:
    return _transform(p, node, x, [dim])


@rule("fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2")
def _transform_two(
    p: Propagation, node: Any, x: Labels, s: Any = None, dim: Sequence[int] = (-2, -1), norm: str | None = None
) -> Labels:
    return _transform(p, node, x, dim)


@rule("fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn")
def _transform_many(
    p: Propagation, node: Any, x: Labels, s: Any = None, dim: Sequence[int] | None = None, norm: str | None = None
) -> Labels:
    if dim is None and s is not None:
        dim = range(-len(s), 0)
    return _transform(p, node, x, axes_of(x, dim))


@rule("fft_fftshift", "fft_ifftshift")
def _shift(p: Propagation, node: Any, x: Labels, dim: int | Sequence[int] | None = None) -> Labels:
    return _pin_transformed(p, node, x, axes_of(x, dim))


def _transform(p: Propagation, node: Any, x: Labels, axes: Sequence[int]) -> Labels:
    count_nothing(p, node)
    return _pin_transformed(p, node, x, axes)


def _pin_transformed(p: Propagation, node: Any, x: Labels, axes: Sequence[int]) -> Labels:
    """Keep the labels of other dimensions, and pin channels along the transformed ones."""
    dims = list(x.dims)
    for axis in axes:
        p.fix(dims[axis], p.reason("channels along which a Fourier transform mixes"))
        dims[axis] = None
    return Labels(out_shape(node), tuple(dims))


@rule("view_as_real")
def _view_as_real(p: Propagation, node: Any, x: Labels) -> Labels:
    return Labels(out_shape(node), (*x.dims, None))


@rule("view_as_complex")
def _view_as_complex(p: Propagation, node: Any, x: Labels) -> Labels:
    p.fix(x.dims[-1], p.reason("channels that are the two parts of a complex number"))
    return Labels(out_shape(node), x.dims[:-1])
