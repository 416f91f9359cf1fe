"""Models side by side: trained with an equal budget, measured on the same examples, on one page."""
