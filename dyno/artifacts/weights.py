"""Whether a file of weights is safe to hand to Keras.

Only `load_weights` ever reads one: of a `.keras` archive it opens the HDF5 file of variables and nothing else, so that
no layer is made from its configuration and no code in it (a Lambda layer's) can run. Keras itself refuses HDF5 links
and data sets that lie outside of the file, or that declare a thousand times what they hold.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

ARCHIVE = ".keras"


def refusal(path: Path, max_bytes: int) -> str | None:
    """Why not to load the file; None if there is no reason known. `max_bytes`: of an archive, once unpacked.

    What an archive declares is what counts: nobody who unpacks it gets more than that out of it.
    """
    if not path.name.endswith(ARCHIVE):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked_bytes = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        return f"{path.name} is no archive: {error}"
    if unpacked_bytes > max_bytes:
        return f"{path.name} unpacks to {unpacked_bytes} bytes, at most {max_bytes} are loaded"
    return None
