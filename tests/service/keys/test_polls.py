"""Long polls of several keys: each key has its share."""

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from service.app import create_app
from service.sharing import StreamLimit

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}


def test_a_free_slot_is_taken_and_returned():
    places = StreamLimit(4)
    with places.slot_if_free("a") as first, places.slot_if_free("a") as second:
        assert (first, second) == (True, False)
        with (
            places.slot_if_free(None) as third,
            places.slot_if_free(None) as fourth,
            places.slot_if_free(None) as fifth,
        ):
            assert (third, fourth, fifth) == (True, True, True)
            with places.slot_if_free("b") as beyond:
                assert not beyond
    with places.slot_if_free("a") as again:
        assert again


def test_a_key_beyond_its_share_of_long_polls_is_answered_at_once(settings, caller, serve):
    with serve(create_app(settings.model_copy(update={"max_connections": 16}))) as http, ThreadPoolExecutor(3) as pool:

        def ask(who, method, path, wait_s=0):
            mine = {"Authorization": f"Bearer {who.secret}"}
            body = BODY if path == "/v1/jobs" else None
            return http.request(method, path, headers=mine, json=body, params={"wait": wait_s} if wait_s else {})

        one, other = caller(), caller()
        path, others_path = (ask(who, "POST", "/v1/jobs").json()["urls"]["self"] for who in (one, other))
        asked, held = wait([pool.submit(ask, one, "GET", path, 20) for _ in range(3)], return_when=FIRST_COMPLETED)
        try:
            assert ["retry-after" in poll.result().headers for poll in asked] == [True]
            assert "retry-after" not in ask(other, "GET", others_path, 0.1).headers
            assert not any(poll.done() for poll in held)
        finally:
            for who, self in ((one, path), (other, others_path)):
                ask(who, "POST", f"{self}/cancel")
        assert [poll.result().json()["status"] for poll in held] == ["canceled"] * 2
