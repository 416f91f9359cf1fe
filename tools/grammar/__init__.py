"""A synchronous grammar of English and French, which writes the embedded corpus."""
