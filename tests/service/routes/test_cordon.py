"""Cordon and uncordon: the wake-up at once, before maintenance runs, and the command's output."""

import json

import pytest

from dyno.celery_app import celery_queue, key_prefix


def test_uncordoning_wakes_the_device(http, client, settings, offered):
    name = offered.full_id
    own = key_prefix(settings) + celery_queue(name).name
    assert http.post(f"/v1/devices/{name}/cordon").status_code == 200
    assert client.llen(own) == 0
    assert http.post(f"/v1/devices/{name}/uncordon").status_code == 200
    assert client.llen(own) == 1


def test_a_device_without_a_live_worker_can_be_uncordoned(http, client, settings):
    client.sadd(f"{settings.namespace}:cordoned", "gpu:3@away")
    answer = http.post("/v1/devices/gpu:3@away/uncordon")
    assert (answer.status_code, answer.json()) == (200, {"device": "gpu:3@away", "cordoned": False})
    assert http.post("/v1/devices/gpu:3@away/uncordon").json()["code"] == "device-not-found"


def test_an_ambiguous_device_name_is_refused_with_all_matches(http, client, settings):
    names = ["gpu:3@east", "gpu:3@west"]
    client.sadd(f"{settings.namespace}:cordoned", *names)
    problem = http.post("/v1/devices/gpu:3/uncordon")
    client.delete(f"{settings.namespace}:cordoned")
    assert (problem.status_code, problem.json()["code"]) == (404, "device-not-found")
    assert all(name in problem.json()["detail"] for name in names)


@pytest.fixture
def said(dyno):
    """The output of `dyno`."""

    def one(*words):
        done = dyno(*words)
        assert done.exit_code == 0, done.output
        return done.stdout

    return one


def test_the_command_names_the_device_with_its_host_and_speaks_json(said, offered):
    name = offered.full_id
    assert said("cordon", offered.id) == f"{name} takes no more jobs\n"
    assert json.loads(said("cordon", offered.id, "--json")) == {"device": name, "cordoned": True}
    assert json.loads(said("uncordon", offered.id, "--json")) == {"device": name, "cordoned": False}
    assert said("uncordon", name) == f"{name} takes jobs again\n"


def test_a_cordon_without_a_live_worker_is_listed_until_lifted(http, said, client, settings, offered):
    client.sadd(f"{settings.namespace}:cordoned", "gpu:3@away", offered.full_id)
    listed = http.get("/v1/devices").json()
    assert listed["cordoned_away"] == ["gpu:3@away"]
    assert [device["id"] for device in listed["data"]] == [offered.id]
    away = {"id": "gpu:3", "host": "away", "state": "away", "cordoned": True}
    assert json.loads(said("devices", "--json"))[1:] == [away]
    assert "gpu:3@away" in said("devices")
    client.delete(f"{settings.namespace}:cordoned")
    assert http.get("/v1/devices").json()["cordoned_away"] == []
    assert "gpu:3" not in said("devices")
