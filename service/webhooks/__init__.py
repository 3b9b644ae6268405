"""Webhooks: their deliveries, and sending them again."""
