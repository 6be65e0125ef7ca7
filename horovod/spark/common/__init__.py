# SPDX-License-Identifier: Apache-2.0
"""What the estimators share: stores, backends, parameters, the preparation of data."""
