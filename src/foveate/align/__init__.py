"""Word alignments: read from attention, written as files, judged against gold."""
