"""Measurements, which assert nothing: what streamsink costs beside Spark's own file sink. See docs/BENCHMARKS.md."""
