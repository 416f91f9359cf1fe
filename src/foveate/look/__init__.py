"""Looking inside: capture what attention does, and draw it."""

from foveate.look.capture import capture
from foveate.look.heatmap import AttentionView, attention
from foveate.look.record import AttentionRecord

__all__ = ["AttentionRecord", "AttentionView", "attention", "capture"]
