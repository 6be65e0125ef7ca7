# SPDX-License-Identifier: Apache-2.0
"""Old import paths of services."""
