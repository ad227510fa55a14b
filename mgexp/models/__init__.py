"""Networks, their layers, and weights in and out."""

import warnings

# fvcore applies ``torch.jit.script``, which is deprecated, to a loss that we do not use.
warnings.filterwarnings("ignore", message=r"`torch\.jit\.script`", category=FutureWarning)
