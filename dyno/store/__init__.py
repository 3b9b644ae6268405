"""Redis, the one place where jobs live: records, queues, leases, events, and one Lua script per transition."""
