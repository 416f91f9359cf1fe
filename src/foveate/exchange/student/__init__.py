"""Make a small translator from any teacher: its answers as data, trained, packed and measured."""
