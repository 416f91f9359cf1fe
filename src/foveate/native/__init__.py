"""The same numbers faster: C for one processor, built where a compiler is found, never needed."""
