"""The same results, faster: C for this processor, built if there is a compiler, never required."""
