# SPDX-License-Identifier: Apache-2.0
"""TensorFlow on Spark: workers of a tf.data service in Spark tasks."""
