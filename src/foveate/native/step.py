"""One step of a Transformer decoder as the kernels read it: the structures of ``step.h``."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_void_p

from foveate.native.layers import Norm, Stack
from foveate.native.linear import Packed


class Decoder(ctypes.Structure):
    """Embeddings, layers and the projection to the vocabulary."""

    _fields_ = (
        ("stack", Stack),
        ("scale", c_float),
        ("table", c_void_p),
        ("first", Norm),
        ("output", Packed),
    )


class Reading(ctypes.Structure):
    """What N hypotheses of M sources have read: see ``step.h``."""

    _fields_ = (
        ("first", c_int32),
        ("rows", c_int32),
        ("each", c_int32),
        ("longest", c_int32),
        ("time", c_int32),
        ("ids", c_void_p),
        ("places", c_void_p),
        ("sources", c_void_p),
        ("begun", c_void_p),
        ("starts", c_void_p),
        ("memory", c_void_p),
        ("blocks", POINTER(c_void_p)),
        ("known", c_int32),
        ("ancestors", c_void_p),
    )
