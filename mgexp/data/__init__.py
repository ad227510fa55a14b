"""Videos for training. Python programs import ``Videos`` and ``videos_in`` from here: docs/library.md."""

from mgexp.data.videos import Videos, videos_in

__all__ = ["Videos", "videos_in"]
