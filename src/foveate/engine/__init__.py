"""What computes the outputs of a trained model: one interface, several engines."""
