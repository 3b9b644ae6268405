"""The URLs and addresses that a webhook may have."""

import pytest
from pydantic import ValidationError

from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.webhook_url import WebhookUrl, is_public_address, parse_webhook_url, reject_reason


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.example.org", WebhookUrl("https", "hooks.example.org", 443, "/")),
        ("HTTPS://Hooks.Example.ORG/a?b=c%20d", WebhookUrl("https", "hooks.example.org", 443, "/a?b=c%20d")),
        ("https://hooks.example.org:8443?b", WebhookUrl("https", "hooks.example.org", 8443, "/?b")),
        ("http://[2001:DB8::1]:80/", WebhookUrl("http", "2001:db8::1", 80, "/")),
        ("http://[2001:DB8:0:0::1]:0080/", WebhookUrl("http", "2001:db8::1", 80, "/")),
        ("https://hooks.example.org./", WebhookUrl("https", "hooks.example.org.", 443, "/")),
    ],
)
def test_a_url_is_parsed_to_scheme_host_port_and_path(url, expected):
    assert parse_webhook_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org",
        "ftp://hooks.example.org/",
        "https:///path",
        "https://user@hooks.example.org/",
        "https://user:word@hooks.example.org/",
        "https://hooks.example.org\\@127.0.0.1/",
        "https://hooks.example.org#@127.0.0.1/",
        "https://hooks.example.org/#part",
        "https://hooks.example.org/a b",
        "https://hooks.example.org/\r\nHost: other",
        "https://hooks.example.org/\n",
        "https://hööks.example.org/",
        "https://hooks%2eexample.org/",
        "https://hooks.example.org:0/",
        "https://hooks.example.org:65536/",
        "https://[::g]/",
        "https://[1.2.3.4]x/",
        "https://[1.2.3.4]/",
        "https://.example.org/",
        "https://hooks..example.org/",
        "https://hooks.example.org../",
        "https://./",
        f"https://{'x' * 64}.example.org/",
        f"https://{'x.' * 127}org/",
        f"https://hooks.example.org/{'x' * 2000}",
    ],
)
def test_an_ambiguous_url_is_refused(url):
    with pytest.raises(ValueError, match=r"webhook|port|IPv6|name"):
        parse_webhook_url(url)
    with pytest.raises(ValidationError):
        Spec.model_validate({"workload": "matmul", "webhook": url})


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_a_public_address_is_public(address):
    assert is_public_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1"),
        *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "2002:a00:1::1", "64:ff9b:1::a00:1"),
        *("192.0.0.192", "192.0.0.8", "192.88.99.1", "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"),
        *("2001::1", "2001:1::1", "3fff::1", "5f00::1"),
    ],
)
def test_other_addresses_are_not_public_however_they_are_wrapped(address):
    assert not is_public_address(address)
    host = f"[{address}]" if ":" in address else address
    if "%" not in address:
        assert reject_reason(parse_webhook_url(f"https://{host}/"), ()) is not None


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "0"]
)
def test_loopback_is_recognized_in_every_notation(host):
    assert reject_reason(parse_webhook_url(f"https://{host}/"), ()) is not None


def test_https_is_required_and_names_are_resolved_later():
    assert reject_reason(parse_webhook_url("https://hooks.example.org/"), ()) is None
    assert reject_reason(parse_webhook_url("https://notlocalhost/"), ()) is None
    assert "https" in (reject_reason(parse_webhook_url("http://hooks.example.org/"), ()) or "")


@pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.1:9000"])
def test_an_allowed_host_may_be_private_and_without_tls(allowed):
    assert reject_reason(parse_webhook_url("http://127.0.0.1:9000/"), [allowed]) is None
    assert reject_reason(parse_webhook_url("http://127.0.0.2:9000/"), [allowed]) is not None
    if ":" in allowed:
        assert reject_reason(parse_webhook_url("http://127.0.0.1:9001/"), [allowed]) is not None


@pytest.mark.parametrize(
    ("listed", "url"),
    [
        ("Hooks.LAN", "http://hooks.lan:9000/"),
        ("hooks.lan:9000", "http://HOOKS.lan:09000/"),
        ("hooks.lan:0080", "http://hooks.lan/"),
        ("[::1]", "http://[0:0::1]:9000/"),
        ("::1", "http://[::1]/"),
        ("[0::1]:443", "https://[::1]/"),
        ("[::1]:9000", "http://[::1]:9000/"),
        ("a, b ,", "http://b/"),
    ],
)
def test_allowed_hosts_match_in_every_notation(listed, url, monkeypatch):
    monkeypatch.setenv("DYNO_WEBHOOK_ALLOWED_HOSTS", listed)
    allowed = Settings().webhook_allowed_hosts
    assert reject_reason(parse_webhook_url(url), allowed) is None
    assert reject_reason(parse_webhook_url("http://elsewhere.lan:9000/"), allowed) is not None
    assert reject_reason(parse_webhook_url("http://[::2]:9000/"), allowed) is not None


@pytest.mark.parametrize(
    "listed",
    [
        "http://hooks.lan",
        "hooks.lan/",
        "*.lan",
        "hooks.lan:",
        "hooks.lan:0",
        "hooks.lan:65536",
        "[::1",
        "[::g]",
        ".lan",
    ],
)
def test_an_invalid_allowed_host_is_refused(listed, monkeypatch):
    monkeypatch.setenv("DYNO_WEBHOOK_ALLOWED_HOSTS", f"hooks.lan,{listed}")
    with pytest.raises(ValidationError, match=r"webhook host|port|IPv6"):
        Settings()


def test_a_webhook_is_its_url_or_an_object_with_it():
    short = Spec.model_validate({"workload": "matmul", "webhook": "https://hooks.example.org/x"}, strict=True)
    assert short.model_dump(mode="json")["webhook"] == {"url": "https://hooks.example.org/x"}
    assert Spec.model_validate(short.model_dump(mode="json"), strict=True) == short
    assert Spec(workload="matmul").webhook is None
