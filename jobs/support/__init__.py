"""What the jobs share: the data, the two sources, a quiet session, progress, the closing table, chaos.
No part of the library."""
