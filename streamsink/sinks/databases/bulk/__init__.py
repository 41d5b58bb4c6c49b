"""Many rows at once, as databases take them from whole Arrow columns."""
