"""Real servers for the tests:
they are started on free ports of the loopback interface and ended by their process id."""
