"""What comes in: from a body, over a spec that its workload understands, to a job in its queue.

Of the service these files import `errors`, `state` and `strict_json` alone, so they know neither routes nor who asks.
"""
