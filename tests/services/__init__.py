"""Real servers for the tests: started on free ports of the loopback interface, ended by their process id."""
