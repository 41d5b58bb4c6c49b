"""Stores: the ``FileIO`` contract and its back ends for a local disk, HDFS and S3, and the holds of running drivers."""
