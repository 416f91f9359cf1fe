"""What a model learns from: text and its words, the embedded corpus, tokenizers, batches."""
