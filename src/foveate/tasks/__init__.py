"""Problems: what goes in, what comes out, how it is judged, and words for what the model did."""
