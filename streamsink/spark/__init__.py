"""The Spark side of the sink. Only modules of this package import pyspark."""
