"""What a micro-batch costs when its table lies on S3: requests, round trips, waiting, money."""
