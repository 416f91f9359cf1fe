"""Laws that the kinds of a family keep; `foveate check` tries them on kinds of the user's own."""
