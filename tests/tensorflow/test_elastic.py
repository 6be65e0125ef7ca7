# SPDX-License-Identifier: Apache-2.0
"""Elastic state, and what the loop around a training function takes for a failure."""

from __future__ import annotations

import pytest
from processes import Processes
from tf_worlds import run


def states():
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common.exceptions import HorovodInternalError
    from horovod.tensorflow import elastic

    me = hvd.rank()
    v = tf.Variable([float(me)])
    state = elastic.TensorFlowState(variables=[v], batch=me)
    attempts = []
    # Re-initialising this world would end it for the other tests: only the restore is looked at.
    before, elastic._reset = elastic._reset, lambda: None
    try:

        @elastic.run
        def train(state, times):
            attempts.append((float(v[0]), state.batch))
            if len(attempts) == 1:
                v.assign([5.0])
                state.batch = 5
                state.commit()
                v.assign([9.0])
                raise HorovodInternalError("a peer was lost")
            return float(v[0]), state.batch, times

        return attempts, train(state, 3)
    finally:
        elastic._reset = before


def test_elastic_state_goes_back_to_the_last_commit():
    expected = ([(0.0, 0), (5.0, 5)], (5.0, 5, 3))
    assert run("tensorflow", states) == [expected, expected]


def foreign_error():
    """An error of the user's own ops, with our name in its text, as a path or a tensor may have it."""
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import elastic

    attempts = []

    @elastic.run
    def train(state):
        attempts.append(1)
        if len(attempts) > 1:
            return "called again"
        raise tf.errors.UnknownError(None, None, "/data/HorovodAllreduce: input/output error")

    before, elastic._reset = elastic._reset, lambda: None
    try:
        return train(elastic.TensorFlowState(variables=[tf.Variable([float(hvd.rank())])]))
    except tf.errors.UnknownError as error:
        return error.message
    finally:
        elastic._reset = before


def test_an_error_that_is_not_ours_is_raised_whatever_its_text_says():
    assert run("tensorflow", foreign_error) == ["/data/HorovodAllreduce: input/output error"] * 2


LOST = """
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow import elastic

hvd.init()
v = tf.Variable([1.0])
state = elastic.TensorFlowState(variables=[v], batch=0)


def reset():
    # The survivor goes on alone.
    hvd.shutdown()
    for name in [name for name in os.environ if "HOROVOD" in name]:
        del os.environ[name]
    hvd.init()


elastic._reset = reset
seen = []
step = tf.function(lambda: hvd.allreduce(v, name="gradient"), jit_compile="compiled" in sys.argv)


@elastic.run
def train(state):
    seen.append((hvd.size(), float(v[0])))
    if len(seen) > 1:
        return
    v.assign([2.0])
    state.save()
    v.assign([9.0])
    while True:
        step()
        say("trained")
        step()  # after this one, the other rank has done the first
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


train(state)
say(seen)
os._exit(0)
"""


@pytest.mark.parametrize("compiled", [False, True])
def test_a_lost_rank_is_a_failure_whatever_type_tensorflow_gives_it(compiled):
    """The kernels end in UnknownError, what XLA compiled in InternalError."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_NUM_INTEROP_THREADS": "2"}
    script = f"sys.argv.append({'compiled' if compiled else 'plain'!r})\n" + LOST
    with Processes(script, 2, env=quiet) as ranks:
        heard = [ranks.heard(0, 240)]  # it imports TensorFlow first
        while heard[-1] == "trained":
            heard.append(ranks.heard(0, 240))
        assert len(heard) > 1
        assert heard[-1] == [[2, 1.0], [1, 2.0]]  # called again, with the values of the last commit
