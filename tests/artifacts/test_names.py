"""Names are never paths, suffixes decide the media type, and the declared size of an archive is limited."""

import zipfile

import pytest

from dyno.artifact_store import is_artifact_name, is_weights, media_type, stored_name, unsafe_weights_reason

LIMIT_BYTES = 10_000


@pytest.mark.parametrize("name", ["model.weights.h5", "a", "A-1_2.png", "a" * 128])
def test_a_plain_file_name_is_a_name(name):
    assert is_artifact_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0", "a\n", "ä", "a b", "a" * 129, "-x"])
def test_a_possible_path_or_option_is_not_a_name(name):
    assert not is_artifact_name(name)


def test_the_media_type_goes_by_the_suffix_from_a_fixed_list():
    assert media_type("training.PNG") == "image/png"
    assert media_type("passage.txt") == "text/plain; charset=utf-8"
    assert {media_type(name) for name in ("x.html", "x.js", "x.weights.h5", "x", "x.xhtml")} == {
        "application/octet-stream"
    }


def test_weights_are_recognized_by_their_suffix():
    assert is_weights("model.weights.h5")
    assert is_weights("model.keras")
    assert not is_weights("model.h5")


def test_other_content_has_another_stored_name():
    assert stored_name("a.png", "0" * 64) != stored_name("a.png", "1" * 64)


def archive(folder, size_bytes):
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("model.weights.h5", bytes(size_bytes))
    return path


def test_an_archive_that_unpacks_to_more_than_is_loaded_is_refused(tmp_path):
    assert unsafe_weights_reason(archive(tmp_path, LIMIT_BYTES), LIMIT_BYTES) is None
    bomb = archive(tmp_path, LIMIT_BYTES + 1)
    assert bomb.stat().st_size < LIMIT_BYTES / 10
    assert str(LIMIT_BYTES + 1) in (unsafe_weights_reason(bomb, LIMIT_BYTES) or "")


def test_an_invalid_archive_is_refused(tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(b"PK but nothing more")
    assert "not a zip archive" in (unsafe_weights_reason(path, LIMIT_BYTES) or "")
