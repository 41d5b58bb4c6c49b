"""What prepares a machine: virtual environments, Java, Spark's connectors.
Standard library only; no part of the installed package."""
