"""Looking inside: capture what attention does, and draw it."""

from foveate.look.capture import AttentionRecord, capture
from foveate.look.edit import (
    capture_outputs,
    diagonal,
    edit,
    force,
    patch,
    patch_output,
    silence,
    uniform,
)
from foveate.look.heatmap import AttentionView, attention

__all__ = [
    "AttentionRecord",
    "AttentionView",
    "attention",
    "capture",
    "capture_outputs",
    "diagonal",
    "edit",
    "force",
    "patch",
    "patch_output",
    "silence",
    "uniform",
]
