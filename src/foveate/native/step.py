"""One step of a Transformer decoder as the kernels read it: the structures of ``kernels.c``."""

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


class Decoder(ctypes.Structure):
    """A decoder and the projection to the vocabulary."""

    _fields_ = (
        ("layers", c_int32),
        ("size", c_int32),
        ("heads", c_int32),
        ("ffn", c_int32),
        ("post", c_int32),
        ("scale", c_float),
        ("table", c_void_p),
        ("layer", POINTER(Layer)),
        ("first", Norm),
        ("last", Norm),
        ("output", Packed),
    )


class Reading(ctypes.Structure):
    """What N hypotheses of M sources have read: see ``kernels.c``."""

    _fields_ = (
        ("first", c_int32),
        ("rows", c_int32),
        ("each", c_int32),
        ("length", c_int32),
        ("time", c_int32),
        ("ids", c_void_p),
        ("place", c_void_p),
        ("sources", c_void_p),
        ("keys", POINTER(c_void_p)),
        ("values", POINTER(c_void_p)),
        ("real", c_void_p),
        ("blocks", POINTER(c_void_p)),
        ("ancestors", c_void_p),
    )
