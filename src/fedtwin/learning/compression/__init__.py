"""Compression: what travels of an upload. One file per scheme, named by ``learning.compress``. NumPy only."""

from fedtwin.config import LearningConfig
from fedtwin.learning.compression import float16, int8, top_k
from fedtwin.learning.compression.base import Compressor, Part, Parts, Scheme, Sent
from fedtwin.learning.layout import Layout

__all__ = ["SCHEMES", "Compressor", "Part", "Parts", "Scheme", "Sent", "compressor_of", "upload_bits"]

SCHEMES: dict[str, Scheme] = {"float16": float16.SCHEME, "int8": int8.SCHEME, "top-k": top_k.SCHEME}


def compressor_of(learning: LearningConfig, layout: Layout) -> Compressor | None:
    """The configured one for models of this layout; None where they are sent as they are."""
    if learning.compress == "none":
        return None
    return Compressor(SCHEMES[learning.compress], layout, learning.top_k, feeds_back=learning.error_feedback)


def upload_bits(layout: Layout, learning: LearningConfig) -> int:
    """What a device sends of a model, in bits, without names."""
    compressor = compressor_of(learning, layout)
    return layout.bits if compressor is None else compressor.bits
