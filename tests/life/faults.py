"""Bugs to inject into the Lua scripts; the stateful tests have to find each of them."""

from __future__ import annotations

from dyno.store.redis import Script

# By name of the bug: the script, the text to replace, and its replacement.
FAULTS: dict[str, tuple[Script, str, str]] = {
    "a finish doesn't look at the token": (Script.FINISH, " or record[2] ~= token", ""),
    "a requeue doesn't look at the token": (Script.REQUEUE, " or record[2] ~= token", ""),
    "a heartbeat doesn't look at the token": (
        Script.HEARTBEAT,
        " or record[2] ~= token or (holder and holder ~= token)",
        "",
    ),
    "a claim doesn't look at the lease": (Script.CLAIM, "if lease[1] then", "if false then"),
    "a claim doesn't know its own token again": (Script.CLAIM, "if lease[2] == token then", "if false then"),
    "a finish doesn't know itself again": (Script.FINISH, "again and 'already' or", ""),
    "a finish keeps the lease": (Script.FINISH, "drop_lease(device, token)\nreturn", "return"),
    "a job handed back doesn't get into its queue": (Script.REQUEUE, "enqueue(id, record[3], record[4])", "0"),
    "a lost job doesn't get into its queue": (Script.EXPIRE, "enqueue(id, record[3], record[4])", "0"),
    "a lost attempt isn't counted": (Script.EXPIRE, "'1', ARGV[3]", "'0', ARGV[3]"),
    "a cancel leaves the job in its queue": (Script.CANCEL, "dequeue(id, record[2])", ""),
    "a cancel that was asked for is forgotten": (Script.REQUEUE, "if record[1] then", "if false then"),
    "a cancel counts twice": (Script.CANCEL, "or record[3] then", "then"),
    "a key makes a second job": (Script.SUBMIT, "if earlier[1] then", "if false then"),
    "it learns from what didn't succeed": (Script.FINISH, "if event == 'succeed' then", "if true then"),
    "an end leaves its index": (Script.FINISH, "redis.call('ZREM', key('jobs', 'status', before), id)", ""),
    "keys take no turns": (
        Script.SUBMIT,
        "edge_of(line_of(queue, owner), priority, true)",
        "edge_of(key('queue', queue), priority, true)",
    ),
    "the round that was reached is forgotten": (
        Script.CLAIM,
        "redis.call('HSET', turns, field, integer(round_of(score)))",
        "",
    ),
    "a job is deleted before its webhook is told": (Script.DELETE, "if ARGV[4] and is_kept() then", "if false then"),
    "an end is told to no webhook": (Script.FINISH, "note_delivery(id, after, record[4], record[2])", ""),
    "an end is told twice": (
        Script.FINISH,
        "  append_event(id, event, after, version, record[2], detail, more)\n",
        "  append_event(id, event, after, version, record[2], detail, more)\n" * 2,
    ),
}
