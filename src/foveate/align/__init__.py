"""Word alignments: read from attention, written to files, judged against gold."""
