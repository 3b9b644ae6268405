"""How the API serves ordinary clients while others abuse it, and how much ordinary load it bears."""
