"""Dead letters: looking at them, and replaying them into their table after a fix, each row once."""
