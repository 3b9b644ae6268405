"""Private folders can't be changed by other users, and the shared one by its users alone."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dyno import folders
from tests.users import BECOME_NOBODY, NOBODY, as_root


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    """A process whose new files all users may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def entered():
    """A folder that all users may enter: pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_private_folder_is_new_for_this_user_alone_with_its_parents(tmp_path, open_umask):
    folders.make_private(tmp_path / "not" / "yet")
    assert [mode(tmp_path / "not"), mode(tmp_path / "not" / "yet")] == [0o700, 0o700]


def test_a_private_folder_may_be_read_by_others_and_stays_as_it_is(tmp_path):
    tmp_path.chmod(0o755)
    folders.make_private(tmp_path)
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o702])
def test_a_private_folder_that_all_may_write_in_is_refused(tmp_path, bits):
    tmp_path.chmod(bits)
    with pytest.raises(PermissionError, match="chmod o-w"):
        folders.make_private(tmp_path)


@as_root
def test_a_private_folder_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}, and this process runs as user 0"):
        folders.make_private(tmp_path)


@as_root
def test_a_private_folder_behind_a_link_of_another_user_is_refused(tmp_path):
    """Else that user could lead Dyno, which deletes files there, to any folder of this user."""
    folders.make_shared(tmp_path / "run")
    (tmp_path / "target").mkdir(mode=0o700)
    link = tmp_path / "run" / f"dyno-{os.geteuid()}"
    link.symlink_to(tmp_path / "target")
    folders.private_folder(tmp_path / "run")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(PermissionError, match=f"link that belongs to user {NOBODY}"):
        folders.private_folder(tmp_path / "run")


def test_a_shared_folder_is_new_for_all_users_and_sticky(tmp_path):
    before = os.umask(0o077)
    try:
        folders.make_shared(tmp_path / "run")
    finally:
        os.umask(before)
    folders.make_shared(tmp_path / "run")
    assert mode(tmp_path / "run") == 0o1777


def test_a_shared_folder_that_is_not_sticky_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match=f"chmod 1777 {tmp_path}"):
        folders.make_shared(tmp_path)


@as_root
def test_a_sticky_folder_of_another_user_is_shared_and_any_other_is_refused(tmp_path):
    os.chown(tmp_path, NOBODY, NOBODY)
    tmp_path.chmod(0o1777)
    folders.make_shared(tmp_path)
    tmp_path.chmod(0o755)
    with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
        folders.make_shared(tmp_path)


@as_root
def test_a_link_of_another_user_is_not_followed(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    folders.make_shared(tmp_path / "link")
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(PermissionError, match=f"a link that belongs to user {NOBODY}"):
        folders.make_shared(tmp_path / "link")


def test_each_user_has_a_private_folder_in_the_shared_one(tmp_path):
    found = folders.private_folder(tmp_path / "run")
    assert found == tmp_path / "run" / f"dyno-{os.geteuid()}"
    assert (mode(found), mode(found.parent)) == (0o700, 0o1777)


@as_root
def test_no_private_folder_is_in_the_shared_one_of_another_user(entered):
    """Its owner could rename the folder, and put another one in its place."""
    folders.make_shared(entered / "run")
    os.chown(entered / "run", NOBODY + 1, NOBODY)
    program = f"import sys\nfrom pathlib import Path\nfrom dyno import folders\n{BECOME_NOBODY}"
    program += "print(folders.private_folder(Path(sys.argv[1])))"
    (entered / "temp").mkdir()
    (entered / "temp").chmod(0o1777)
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(entered / "run")],
        env={**os.environ, "TMPDIR": str(entered / "temp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(entered / "temp" / f"dyno-{NOBODY}"), done.stderr
    assert list((entered / "run").iterdir()) == []
