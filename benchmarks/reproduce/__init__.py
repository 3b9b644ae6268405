"""The experiments of the reference articles, as near to their size as the machine allows."""
