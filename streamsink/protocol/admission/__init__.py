"""Admission of a micro-batch: what it is, and the errors for a batch that must not be written. Pure decisions."""
