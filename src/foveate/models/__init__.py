"""Models: encoders, decoders and how they are joined. Built from ``nn``, independent of text."""
