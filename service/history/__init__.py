"""History: one series of results over time, its changes and alarms."""
