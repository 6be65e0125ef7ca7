# SPDX-License-Identifier: Apache-2.0
"""A PyTorch that is too old is refused with a sentence."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
del torch.Tensor.register_post_accumulate_grad_hook  # as before PyTorch 2.1
for name in ("impl_abstract", "register_fake", "register_autograd"):
    if hasattr(torch.library, name):
        delattr(torch.library, name)
torch.__version__ = "2.0.1"
try:
    import horovod.torch
except ImportError as error:
    print(error)
"""


def test_an_old_pytorch_gets_a_sentence():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("horovod.torch needs PyTorch 2.1 or newer, and this is 2.0.1")
