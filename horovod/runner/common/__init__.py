# SPDX-License-Identifier: Apache-2.0
"""Old import paths; see horovod.runner.common.util."""
