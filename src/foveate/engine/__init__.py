"""Engines that compute the outputs of a trained model, behind one interface."""
