# SPDX-License-Identifier: Apache-2.0
"""Collectives inside compiled programs: order, control flow, memory, and errors that reach all ranks."""

from __future__ import annotations

import pytest


def run_many_calls():
    """Twenty data-independent calls in one program, on very different amounts of work, many times over."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    def program(x):
        outputs = []
        for i in range(20):
            y = (x @ x.T) * i if i % 3 == 0 else x * i
            outputs.append(hvd.allreduce(y, op=hvd.Sum, name=f"many.{i}" if i % 2 else None))
        return outputs

    jitted = jax.jit(program)
    x = jnp.full((60, 60), hvd.rank() + 1.0, jnp.float32)
    powers = [sum((r + 1.0) ** p for r in range(hvd.size())) for p in (1, 2)]
    for _ in range(5):
        for i, out in enumerate(jitted(x)):
            want = powers[1] * 60 * i if i % 3 == 0 else powers[0] * i
            assert jnp.allclose(out, want), (i, out[0, 0], want)
    return True


def run_different_trace_orders():
    """Ranks that trace their functions in different orders still match: names do not depend on it."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    functions = {
        "sum": jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum)),
        "max": jax.jit(lambda x: hvd.allreduce({"a": x, "b": x + 1}, op=hvd.Max)["b"]),
        "gather": jax.jit(lambda x: hvd.allgather(x).sum()),
    }
    x = jnp.full((4,), hvd.rank() + 1.0, jnp.float32)
    order = list(functions) if hvd.rank() % 2 == 0 else list(functions)[::-1]
    compiled = {name: functions[name].lower(x).compile() for name in order}
    n = hvd.size()
    for _ in range(3):
        assert jnp.allclose(compiled["gather"](x), 4 * n * (n + 1) / 2)
        assert jnp.allclose(compiled["sum"](x), n * (n + 1) / 2)
        assert jnp.allclose(compiled["max"](x), n + 1)
    return True


def run_different_programs():
    """Ranks may compile different arithmetic around the same collectives."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    def program(x):
        if hvd.rank() == 0:
            b, a = hvd.allreduce(x * 2, op=hvd.Sum), None
            for _ in range(5):
                x = x @ x / 100
            a = hvd.allreduce(x * 0 + 1, op=hvd.Sum)
        else:
            b = hvd.allreduce(x * 2, op=hvd.Sum)
            a = hvd.allreduce(jnp.ones_like(x), op=hvd.Sum)
        return a, b

    a, b = jax.jit(program)(jnp.ones((50, 50), jnp.float32))
    assert jnp.allclose(a, hvd.size()) and jnp.allclose(b, 2 * hvd.size())
    return True


def run_asynchronous_dispatch():
    """Programs dispatched without waiting run one after the other, with the same results."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    step = jax.jit(lambda x, i: hvd.allreduce(x + i))
    other = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Max))
    x = y = jnp.zeros((1000,), jnp.float32)
    for i in range(50):
        x = step(x, i * hvd.rank())
        y = other(y + 1)
    mean = (hvd.size() - 1) / 2
    assert jnp.allclose(x, sum(i * mean for i in range(50))), x[0]
    assert jnp.allclose(y, 50)
    return True


def run_control_flow():
    """scan, while, cond and vmap, and eager calls in between."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    n, rank = hvd.size(), hvd.rank()
    x = jnp.full((3,), rank + 1.0, jnp.float32)

    scanned = jax.jit(
        lambda x: jax.lax.scan(lambda c, _: (hvd.allreduce(c, op=hvd.Sum), c.sum()), x, None, length=3)
    )
    carry, history = scanned(x)
    total = n * (n + 1) / 2
    assert jnp.allclose(carry, total * n**2) and jnp.allclose(
        history[1:], jnp.array([3 * total, 3 * total * n])
    )
    assert jnp.allclose(hvd.allreduce(x, op=hvd.Sum), total)

    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 4, lambda i, c: hvd.allreduce(c + i), x))
    assert jnp.allclose(looped(x), (n + 1) / 2 + 6)

    branch = jax.jit(lambda p, x: jax.lax.cond(p, lambda v: hvd.allreduce(v, op=hvd.Max), lambda v: v, x))
    assert jnp.allclose(branch(True, x), n) and jnp.allclose(branch(False, x), rank + 1)

    rows = jnp.arange(12.0).reshape(4, 3) + rank
    summed = sum(jnp.arange(12.0).reshape(4, 3) + r for r in range(n))
    assert jnp.allclose(jax.vmap(lambda v: hvd.allreduce(v, op=hvd.Sum))(rows), summed)
    assert jnp.allclose(jax.jit(jax.vmap(lambda v: hvd.allreduce(v, op=hvd.Sum)))(rows), summed)
    gathered = jax.vmap(hvd.allgather)(rows)
    assert gathered.shape == (4, 3 * n) and jnp.allclose(gathered[:, 3 * rank : 3 * rank + 3], rows)
    return True


def run_memory():
    """A donated argument is reduced where it is."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    step = jax.jit(lambda x: hvd.allreduce(x), donate_argnums=0)
    x = step(jnp.ones((1 << 16,), jnp.float32) * hvd.rank())
    before = x.unsafe_buffer_pointer()
    y = step(x)
    y.block_until_ready()
    kept = jax.jit(lambda x: (hvd.allreduce(x, op=hvd.Sum), x))
    total, mine = kept(jnp.full((8,), float(hvd.rank())))
    assert jnp.allclose(mine, hvd.rank()) and jnp.allclose(total, sum(range(hvd.size())))
    return y.unsafe_buffer_pointer() == before and bool(jnp.allclose(y, (hvd.size() - 1) / 2))


def run_unused_result():
    """A collective whose result nobody uses still runs: the other ranks wait for it."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    def program(x):
        total = hvd.allreduce(x, op=hvd.Sum)
        return total if hvd.rank() == 0 else x

    x = jnp.ones((5,), jnp.float32)
    return float(jax.jit(program)(x)[0]) == (hvd.size() if hvd.rank() == 0 else 1)


@pytest.mark.parametrize(
    "body",
    [
        run_many_calls,
        run_different_trace_orders,
        run_different_programs,
        run_asynchronous_dispatch,
        run_control_flow,
        run_memory,
        run_unused_result,
    ],
    ids=lambda body: body.__name__[4:],
)
def test_program(world, body):
    assert all(world.run(body))


def run_mismatch(mode):
    """Ranks that disagree all get the reason, and go on."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    function = (lambda x: hvd.allreduce(x, name="mismatch")) if mode == "eager" else jax.jit(hvd.allreduce)
    texts = []
    for bad in (jnp.ones((3 + hvd.rank(),)), jnp.ones((3,), jnp.float32 if hvd.rank() else jnp.int32)):
        try:
            jax.block_until_ready(function(bad))
            texts.append("no error")
        except Exception as error:
            texts.append(f"{type(error).__name__}: {error}")
    assert jnp.allclose(function(jnp.ones((3,), jnp.float32)), 1)
    return texts


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_mismatch_is_an_error_everywhere(pair, mode):
    kind = "RanksDisagree" if mode == "eager" else "RuntimeError"
    for texts in pair.run(run_mismatch, mode):
        assert "shape" in texts[0] and kind in texts[0], texts
        assert "data types" in texts[1] and kind in texts[1], texts


def run_gather_of_different_rows():
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    try:
        jax.block_until_ready(jax.jit(hvd.allgather)(jnp.ones((2 + hvd.rank(),))))
        return "no error"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_jitted_allgather_refuses_different_rows(pair):
    assert all("RuntimeError" in text for text in pair.run(run_gather_of_different_rows))


def run_refusals():
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    def reason(function, *arguments):
        try:
            function(*arguments)
            return "no error"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    x = jnp.ones((4, 2))
    others = hvd.add_process_set([1 - hvd.rank()] if hvd.rank() > 1 else [0])
    texts = {
        "scalar": reason(hvd.allgather, jnp.ones(())),
        "complex": reason(jax.jit(hvd.allreduce), x + 1j),
        "average and op": reason(lambda: hvd.allreduce(x, average=True, op=hvd.Sum)),
        "root": reason(lambda: hvd.broadcast(x, hvd.size())),
        "splits": reason(lambda: hvd.alltoall(x, [5] * hvd.size())),
        "uneven splits": reason(jax.jit(lambda a: hvd.alltoall(a, [3] + [0] * (hvd.size() - 1))), x),
        "scatter": reason(lambda: hvd.reducescatter(x, op=hvd.Max)),
        "barrier": reason(jax.jit(lambda a: (hvd.barrier(), a)[1]), x),
        "member": reason(lambda: hvd.allreduce(x, process_set=others)) if not others.included() else "",
    }
    hvd.barrier()
    hvd.remove_process_set(others)
    return texts


def test_wrong_arguments_are_refused_at_the_call(pair):
    wants = {
        "scalar": "ValueError: Allgather does not support scalar inputs",
        "complex": "ValueError: horovod.jax does not support tensors of type complex",
        "average and op": "ValueError: The op parameter supersedes average",
        "root": "ValueError: broadcast received invalid root rank",
        "splits": "ValueError: Sum of splits entries is greater than the first dimension of tensor.",
        "uneven splits": "ValueError: alltoall inside jit needs equal splits",
        "scatter": "ValueError: Reducescatter currently only supports AVERAGE and SUM.",
        "barrier": "RuntimeError: hvd.barrier() cannot be part of a jitted function",
        "member": "ValueError: Allreduce: Rank 1 is not a member of the provided process set.",
    }
    for rank, texts in enumerate(pair.run(run_refusals)):
        for what, want in wants.items():
            if what != "member" or rank == 1:
                assert texts[what].startswith(want), (rank, what, texts[what])
