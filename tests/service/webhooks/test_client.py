"""Deliveries through both clients and the command."""

import json

import pytest

from dyno.client import AsyncClient, Client, Refused, endpoints
from tests.asking import asked


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_delivery_is_found_and_redelivered(kind, http, inbox, canceled, delivery, monkeypatch):
    monkeypatch.setattr(endpoints, "MAX_PAGE_SIZE", 1)
    url = str(http.base_url)
    jobs = [canceled(inbox.url) for _ in range(2)]
    for job in jobs:
        delivery(job, ended=1)
    found = asked(kind, lambda client: client.deliveries(status="delivered", limit=2), url)
    assert [each.job for each in found] == jobs[::-1]
    again = asked(kind, lambda client: client.redeliver(found[0].id), url)
    assert (again.id, again.job) == (found[0].id, jobs[1])
    delivery(jobs[1], ended=2)
    with pytest.raises(Refused):
        asked(kind, lambda client: client.redeliver("msg_none"), url)


def test_the_command_lists_deliveries_and_redelivers_one(dyno, inbox, canceled, delivery):
    def said(*arguments, code=0):
        done = dyno("webhooks", *arguments)
        assert done.exit_code == code, done.output
        return done.output

    job = canceled(inbox.url)
    sent = delivery(job, ended=1)
    assert sent["id"] in said("deliveries", "--job", job)
    assert [each["id"] for each in json.loads(said("deliveries", "--job", job, "--json"))] == [sent["id"]]
    assert json.loads(said("deliveries", "--job", job, "--status", "failed", "--json")) == []
    assert json.loads(said("redeliver", sent["id"], "--json"))["job"] == job
    delivery(job, ended=2)
    said("redeliver", "msg_none", code=3)
    said("deliveries", "--status", "lost", code=2)
