"""``streamsink report``: what a table has lived through, as data and as one page that stands alone."""
