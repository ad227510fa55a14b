"""Pack the copies of a clip store into shards while it is filled, and throw away shards that nothing needs.

The order of the writes makes every kill survivable: the shard is whole on the disk first, then its lines in the
manifest, and only then the copies that were files are deleted. Until its lines are there, a shard does not count.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from mgexp.run.files import append_jsonl, sync_file
from mgexp.video.shards import crc32_of, write_shard
from mgexp.video.store import Copy, StoreDir, StoredVideo, copy_name


class Packer:
    """Packs the copies of ``known`` videos, a shard of about ``shard_bytes`` after the other, for each level.

    ``known`` is the manifest by path. It changes here when copies move into a shard. Only the process that holds
    the lock of the store may use this.
    """

    def __init__(self, store: StoreDir, known: dict[str, StoredVideo], shard_bytes: int) -> None:
        self._store = store
        self._known = known
        self._shard_bytes = shard_bytes
        # The paths of the videos whose copies wait for a shard, and the bytes of these copies, by level.
        self._waiting: dict[int, dict[str, int]] = defaultdict(dict)
        self._bytes: dict[int, int] = defaultdict(int)
        self._next = {level: max(numbers) + 1 for level, numbers in used_shards(known).items()}

    def add(self, video: StoredVideo) -> None:
        """Let the copies of a video that are files wait for a shard, and write the shards that are full now."""
        for level, copy in video.levels.items():
            if copy.part is None and self._is_there(level, video.path, copy):
                waiting = self._waiting[level]
                self._bytes[level] += copy.size_bytes - waiting.get(video.path, 0)
                waiting[video.path] = copy.size_bytes
                if self._bytes[level] >= self._shard_bytes:
                    self._pack(level)

    def finish(self) -> None:
        """Write a last shard, perhaps a small one, of each level. Raises OSError."""
        for level, waiting in self._waiting.items():
            if waiting:
                self._pack(level)

    def _is_there(self, level: int, path: str, copy: Copy) -> bool:
        try:
            return self._store.copy(level, path).stat().st_size == copy.size_bytes
        except OSError:
            return False

    def _pack(self, level: int) -> None:
        number = self._next.get(level, 0)
        paths = [*self._waiting[level]]
        files = [self._store.copy(level, path) for path in paths]
        members = [(copy_name(path), file) for path, file in zip(paths, files, strict=True)]
        parts = write_shard(self._store.shard(level, number), number, members)
        for path, part in zip(paths, parts, strict=True):
            video = self._known[path]
            copy = replace(video.levels[level], part=part)
            packed = replace(video, levels={**video.levels, level: copy})
            self._known[path] = packed
            append_jsonl(self._store.manifest_jsonl, packed.line())
        sync_file(self._store.manifest_jsonl)
        for file in files:
            file.unlink()
        self._next[level] = number + 1
        self._waiting[level], self._bytes[level] = {}, 0


def used_shards(known: dict[str, StoredVideo]) -> dict[int, set[int]]:
    """Return the numbers of the shards that hold copies of these videos, by level."""
    used: dict[int, set[int]] = defaultdict(set)
    for video in known.values():
        for level, copy in video.levels.items():
            if copy.part is not None:
                used[level].add(copy.part.shard)
    return used


def remove_unused(store: StoreDir, known: dict[str, StoredVideo]) -> None:
    """Delete what holds no copy that counts: shards without a line, and files of copies that shards hold."""
    used = used_shards(known)
    for shard in store.root.glob("*/" + "[0-9]" * 6 + ".tar"):
        level = shard.parent.name
        if level.isdigit() and int(shard.stem) not in used[int(level)]:
            shard.unlink()
    packed = {
        f"{level}/{copy_name(video.path)}"
        for video in known.values()
        for level, copy in video.levels.items()
        if copy.part is not None
    }
    # A copy may end in .MP4, as its video.
    for file in store.root.rglob("*.[mM][pP]4") if packed else ():
        if file.relative_to(store.root).as_posix() in packed:
            file.unlink()


class Shards:
    """The shards of a store as they lie on the disk; each is looked at once."""

    def __init__(self, store: StoreDir) -> None:
        self._store = store
        self._sizes: dict[tuple[int, int], int] = {}

    def hold(self, level: int, copy: Copy, verify: bool) -> bool:
        """Tell whether a copy is there as a whole. With ``verify``, also compare the sum of its bytes."""
        assert copy.part is not None
        place = level, copy.part.shard
        shard = self._store.shard(*place)
        try:
            if place not in self._sizes:
                self._sizes[place] = shard.stat().st_size
            if self._sizes[place] < copy.part.offset + copy.size_bytes:
                return False
            found = verify and crc32_of(shard, copy.part.offset, copy.size_bytes)
        except OSError:
            return False
        return not verify or found == copy.part.crc32
