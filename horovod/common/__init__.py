# SPDX-License-Identifier: Apache-2.0
"""What all front ends share: lifecycle, requests, process sets, settings, errors. Names no framework."""
