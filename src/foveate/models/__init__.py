"""Models: encoders, decoders and how they join. Built from ``nn``; they know no text."""
