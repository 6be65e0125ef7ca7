# SPDX-License-Identifier: Apache-2.0
"""Names that scripts and tests import from here since long; the code lives in horovod.runner."""
