"""One worker is one device."""
