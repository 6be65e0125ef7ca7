# SPDX-License-Identifier: Apache-2.0
"""Spark on this machine, small: sessions of a given master, with this Python for the tasks."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys

from world import ROOT, SUPPORT

SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    # Tests end before a good compiler or collector would pay.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


@contextlib.contextmanager
def session(master, conf=None):
    """A session, stopped at the end; conf has further settings."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, SUPPORT])
    builder = SparkSession.builder.master(master).appName("horovod tests")
    for name, value in {**SMALL, **(conf or {})}.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    try:
        yield started
    finally:
        started.stop()


@contextlib.contextmanager
def connect_session(slots):
    """A session through Spark Connect, with a server of its own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, SUPPORT])
    # The server is started by the first session and takes its settings from here.
    words = [
        f"--conf {name}={shlex.quote(value)}" for name, value in SMALL.items() if "parallelism" not in name
    ]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*words, "pyspark-shell"])
    started = SparkSession.builder.remote(f"local[{slots}]").getOrCreate()
    try:
        yield started
    finally:
        started.stop()
