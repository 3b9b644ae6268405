"""Job storage in Redis: records, queues, leases, events, and one Lua script per transition."""
