"""Where bytes live: the FileIO contract and its back ends, and the journal that is kept there."""
