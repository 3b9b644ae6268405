"""Jobs: submit, read, cancel, follow and rerun them."""
