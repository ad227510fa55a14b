"""mgexp: train video models with multigrid mini-batches (Wu et al., CVPR 2020)."""

__version__ = "0.1.0"
