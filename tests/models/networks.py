"""Small networks that several tests build."""

from __future__ import annotations

from mgexp.models.vit import VideoTransformer


def video_transformer(**changes) -> VideoTransformer:
    """Two blocks on tubelets of 2 frames of 16 x 16 pixels without any dropping, but for ``changes``."""
    settings = {"num_classes": 5, "depth": 2, "mlp_ratio": 2.0, "tubelet": (2, 16, 16)}
    settings |= {"positions": "learned", "has_class_token": False, "drop_path": 0.0, "dropout": 0.0}
    return VideoTransformer(**{**settings, **changes})
