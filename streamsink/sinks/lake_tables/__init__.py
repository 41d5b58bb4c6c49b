"""What tables of other lake formats share whose files have their final names when they are written."""
