"""Directories of Parquet, JSON or CSV files, for readers that know no table format."""
