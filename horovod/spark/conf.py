# SPDX-License-Identifier: Apache-2.0
"""Settings of Spark that matter to elastic jobs, as pairs for SparkConf.set(*pair).

An elastic job goes on when ranks fail, as long as Spark starts their tasks again: it must not give up after a
number of failures, and should avoid executors and nodes that keep failing only if there are others.
"""

from __future__ import annotations

_ALWAYS, _ONCE = "2147483647", "1"
_EXCLUDE = "spark.excludeOnFailure"  # called spark.blacklist before Spark 3.1

# A task may fail any number of times.
SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", _ALWAYS)

# Whether executors and nodes that failed are avoided at all.
SPARK_CONF_BLACKLIST_DISABLED = (f"{_EXCLUDE}.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = (f"{_EXCLUDE}.enabled", "true")

# An executor on which a task failed: for other tasks of the stage, and of the application.
_EXECUTOR = f"{_EXCLUDE}.stage.maxFailedTasksPerExecutor"
_EXECUTOR_IN_APP = f"{_EXCLUDE}.application.maxFailedTasksPerExecutor"
SPARK_CONF_REUSE_FAILED_EXECUTOR = (_EXECUTOR, _ALWAYS)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (_EXECUTOR, _ONCE)
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (_EXECUTOR_IN_APP, _ALWAYS)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = (_EXECUTOR_IN_APP, _ONCE)

# A node on which an executor was excluded: for the stage, and for the application.
_NODE = f"{_EXCLUDE}.stage.maxFailedExecutorsPerNode"
_NODE_IN_APP = f"{_EXCLUDE}.application.maxFailedExecutorsPerNode"
SPARK_CONF_REUSE_FAILING_NODE = (_NODE, _ALWAYS)
SPARK_CONF_DONT_REUSE_FAILING_NODE = (_NODE, _ONCE)
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = (_NODE_IN_APP, _ALWAYS)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = (_NODE_IN_APP, _ONCE)

# How often the same task is tried on one executor, and on one node.
_TASK_EXECUTOR = f"{_EXCLUDE}.task.maxTaskAttemptsPerExecutor"
_TASK_NODE = f"{_EXCLUDE}.task.maxTaskAttemptsPerNode"
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (_TASK_EXECUTOR, _ALWAYS)
SPARK_CONF_REUSE_EXECUTOR_ONCE_FOR_SAME_TASK = (_TASK_EXECUTOR, _ONCE)
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (_TASK_NODE, _ALWAYS)
SPARK_CONF_REUSE_NODE_ONCE_FOR_SAME_TASK = (_TASK_NODE, _ONCE)

# What Spark does without any of these.
SPARK_CONF_DEFAULT_VALUES = {
    "spark.task.maxFailures": "4",
    f"{_EXCLUDE}.enabled": "false",
    _EXECUTOR: "2",
    _EXECUTOR_IN_APP: "2",
    _NODE: "2",
    _NODE_IN_APP: "2",
    _TASK_EXECUTOR: "1",
    _TASK_NODE: "2",
}
