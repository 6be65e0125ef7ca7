# SPDX-License-Identifier: Apache-2.0
"""The oldest PyTorch that has what we need: hooks that run when a gradient is complete."""

from __future__ import annotations

import torch

if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(
        f"horovod.torch needs PyTorch 2.1 or newer, and this is {torch.__version__}: it lacks the hooks that "
        "run when a gradient is complete. Install a newer one, e.g. `pip install --upgrade torch`."
    )
