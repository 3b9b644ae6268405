"""Names that look like paths, requested literally and not as client libraries normalize them."""

import socket

import pytest

SECRET = b"nobody's business"
NAMES = [
    "..",
    ".",
    "../secret",
    "../../secret",
    "%2e%2e",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%2fsecret",
    "..%5csecret",
    "%252e%252e%252fsecret",
    "%c0%ae%c0%ae%c0%afsecret",
    "%ef%bc%8e%ef%bc%8e%ef%bc%8fsecret",
    "%e2%80%a4%e2%80%a4%2fsecret",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "//etc/passwd",
    "a/../../secret",
    "a.txt%00.png",
    "%00",
    "a.txt%0d%0aX-Mine:%20yes",
    "a.txt%0a",
    "a" * 5000,
    "%61" * 1000,
    ".hidden",
    "~root",
    "$HOME",
    "file:%2f%2f%2fetc%2fpasswd",
    "a.txt/",
    "a.txt;x",
    "%ff%fe",
    "%ed%a0%80",
    "%u002e%u002e",
    "%",
]


def raw(http, method, path, body=b"", token=""):
    """The whole response to a request for exactly `path`."""
    fields = (
        f"Host: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    with socket.create_connection((http.base_url.host, http.base_url.port), timeout=60) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{fields}".encode() + body)
        said = b""
        while piece := connection.recv(65536):
            said += piece
    return said


def status(said):
    return int(said.split()[1])


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leaves_the_folder_of_its_job(http, worker, settings, tmp_path_factory, name):
    claim = worker.claim()
    outside = settings.artifact_dir.parent
    (outside / "secret").write_bytes(SECRET)
    before = everything(outside)
    path = f"/v1/jobs/{claim.job_id}/artifacts/{name}"
    assert 400 <= status(raw(http, "PUT", path, b"mine", claim.token)) < 500
    assert everything(outside) == before
    for method in ("GET", "HEAD", "DELETE"):
        said = raw(http, method, path)
        assert 400 <= status(said) < 500
        assert SECRET not in said
        assert b"\r\nx-mine" not in said.lower()


def everything(folder):
    """All files below `folder`."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_valid_name_is_stored_in_the_folder_of_its_job(http, worker, settings):
    claim = worker.claim()
    path = f"/v1/jobs/{claim.job_id}/artifacts/"
    assert status(raw(http, "PUT", path + "%61.txt", b"mine", claim.token)) == 200
    assert list(everything(settings.artifact_dir / claim.job_id).values()) == [b"mine"]
