"""The data a model learns from: text and its words, embedded corpora, tokenizers, batches."""
