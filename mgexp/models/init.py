"""Initial weights, whatever the class of the normalisation layers."""

from __future__ import annotations

from torch import nn


def init_weights(
    model: nn.Module, fc_init_std: float = 0.01, zero_init_final_bn: bool = True
) -> None:
    """Draw the initial weights of ``model`` from torch's current generator: the caller seeds it.

    Convolutions: normal with variance 2 / fan_out (He et al. 2015). Fully connected: normal with
    standard deviation ``fc_init_std``, bias 0. Batch normalisation: gamma 1, beta 0; with
    ``zero_init_final_bn`` gamma 0 in the last one of each residual block (Goyal et al. 2017, section
    5.1), which pytorchvideo's blocks mark by ``block_final_bn``, whatever its class.
    Constants: PySlowFast's init_weights. That one loses the zeros in sub-batch normalisation, which
    there is no nn.BatchNorm3d, so that a multigrid run did not start like its baseline; here it does.
    Raises TypeError for a layer with parameters of any other kind.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm3d):
            is_zero = zero_init_final_bn and getattr(module, "block_final_bn", False)
            nn.init.constant_(module.weight, 0.0 if is_zero else 1.0)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=fc_init_std)
            nn.init.zeros_(module.bias)
        elif any(True for _ in module.parameters(recurse=False)):
            raise TypeError(f"init_weights knows no initial weights for {type(module).__name__}")
