"""Layers of a Transformer as the kernels read them: the structures of ``layers.h``."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_void_p

from foveate.native.linear import Packed


class Norm(ctypes.Structure):
    """γ (x − mean x) / √(var x + ε) + β; the identity where ``gain`` is null."""

    _fields_ = (("gain", c_void_p), ("shift", c_void_p), ("eps", c_float))


class Layer(ctypes.Structure):
    """The maps of a layer, those of cross-attention empty without a memory, and its norms."""

    _fields_ = (
        ("own", Packed),
        ("own_out", Packed),
        ("query", Packed),
        ("cross_out", Packed),
        ("inner", Packed),
        ("outer", Packed),
        ("norm", Norm * 3),
    )


class Stack(ctypes.Structure):
    """Layers, one on another, and the norm that closes them."""

    _fields_ = (
        ("layers", c_int32),
        ("size", c_int32),
        ("heads", c_int32),
        ("ffn", c_int32),
        ("post", c_int32),
        ("layer", POINTER(Layer)),
        ("last", Norm),
    )
