"""Laws that all kinds of a family satisfy; `foveate check` tests them on user-defined kinds."""
