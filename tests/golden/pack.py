"""Packs a folder of cases into one archive; equal content gives equal bytes: ``python
tests/golden/pack.py FOLDER ARCHIVE``.
"""

from __future__ import annotations

import lzma
import sys
import tarfile
from pathlib import Path


def case_folders(folder: Path) -> list[Path]:
    """The folders that hold a case."""
    return sorted(path.parent for path in folder.glob("*/case.json"))


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without anything that tells of the machine on which it was packed."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def pack(folder: Path, archive: Path) -> None:
    """Write the archive; members are sorted by name."""
    with (
        lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for case in case_folders(folder):
            tar.add(case, case.name, filter=plain)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
