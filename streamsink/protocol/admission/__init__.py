"""Admission of a micro-batch: what it is, and what is said when it must not be written. Pure decisions."""
