"""What operators do with tables and journals beside the functions of the package; no Spark, no printing."""
