"""Workers: one process per device, which claims jobs and runs them."""
