# SPDX-License-Identifier: Apache-2.0
"""A reader's batches as a tf.data.Dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from horovod.data.reader import ParquetReader


def dataset_of(reader: ParquetReader) -> Any:
    """The dataset; types and shapes are those of the first row."""
    specs = tf.nest.map_structure(_spec, reader.example())
    return tf.data.Dataset.from_generator(lambda: iter(reader), output_signature=specs)


def _spec(array: Any) -> Any:
    array = np.asarray(array)
    kind = tf.string if array.dtype.kind in "OUS" else tf.as_dtype(array.dtype)
    return tf.TensorSpec((None, *array.shape[1:]), kind)
