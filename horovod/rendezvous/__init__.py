# SPDX-License-Identifier: Apache-2.0
"""Who am I, and who are the others: from a launcher's variables to a world of connected ranks."""
