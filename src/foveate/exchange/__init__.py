"""Convert models to and from the files of other libraries. Importing this needs none of them."""
