"""How the rows of a DataFrame become staged files."""
