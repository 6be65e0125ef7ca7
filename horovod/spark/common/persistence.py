# SPDX-License-Identifier: Apache-2.0
"""Saving and loading of estimators and models in the manner of Spark ML, in pipelines too.

Parameters that JSON cannot hold (models, functions, stores) are kept as pickles: load only what you trust.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLWritable

from horovod.spark.session import is_connect

_PICKLE = "__pickle__"


class HorovodParamsWriter(DefaultParamsWriter):
    """Writes all parameters that were set."""

    def saveImpl(self, path: str) -> None:
        """Writes <path>/metadata, as Spark's own writer does."""
        instance = self.instance
        values = {
            param.name: encode(instance._portable(param.name, value))
            for param, value in instance._paramMap.items()
        }
        session = self.sparkSession
        text = DefaultParamsWriter._get_metadata_to_save(instance, session, paramMap=values)
        mode = "overwrite" if self.shouldOverwrite else "error"
        frame = session.createDataFrame([(text,)], schema=["value"]).coalesce(1)
        frame.write.mode(mode).text(f"{path}/metadata")

    def _handleOverwrite(self, path: str) -> None:
        """Deletes what is there; with Connect, where Spark cannot, the metadata is overwritten."""
        if not is_connect(self.sparkSession):
            super()._handleOverwrite(path)


class HorovodParamsReader(DefaultParamsReader):
    """Reads what the writer wrote."""

    def load(self, path: str) -> Any:
        """The estimator or model with the parameters it was saved with."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        instance = self.cls()
        instance._resetUid(metadata["uid"])
        values = {name: decode(value) for name, value in metadata["paramMap"].items()}
        instance._set(**{name: instance._restored(name, value, values) for name, value in values.items()})
        return instance


class HorovodPersistence(MLReadable, MLWritable):
    """For a Params class: `write().overwrite().save(path)` and `load(path)`."""

    def write(self) -> HorovodParamsWriter:
        """A writer of this object."""
        return HorovodParamsWriter(self)

    @classmethod
    def read(cls) -> HorovodParamsReader:
        """A reader of objects of this class."""
        return HorovodParamsReader(cls)

    def _portable(self, name: str, value: Any) -> Any:
        """A parameter's value in a form that can be pickled."""
        return value

    def _restored(self, name: str, value: Any, values: Dict[str, Any]) -> Any:
        """The opposite; `values` are all parameters."""
        return value


def encode(value: Any) -> Any:
    """A value as JSON has it."""
    import cloudpickle

    try:
        if json.loads(json.dumps(value)) == value:
            return value
    except (TypeError, ValueError):
        pass
    return {_PICKLE: base64.b64encode(cloudpickle.dumps(value)).decode()}


def decode(value: Any) -> Any:
    """The opposite of `encode`."""
    import cloudpickle

    if isinstance(value, dict) and set(value) == {_PICKLE}:
        return cloudpickle.loads(base64.b64decode(value[_PICKLE]))
    return value
