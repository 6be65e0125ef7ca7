# SPDX-License-Identifier: Apache-2.0
"""Somebody on the path between the hosts relays the handshakes and then alters what the ranks send."""

from __future__ import annotations

import pytest
from middle_man import MiddleMan, flip, repeat
from processes import Processes

from horovod.common.constants import LINK_CONTROL, LINK_DATA_OUT, LINK_QUICK, LINK_WATCH

HOSTS = ["a", "b", "b"]

# Sums of ones until something happens. Those of few elements need no plan.
SUMS = """
hvd.init()
def loop():
    for i in range(10**9):
        got = hvd.allreduce(np.ones({elements}, np.float32), op=hvd.Sum, name="sum")
        if not (got == 3).all():
            say("wrong sum")
            os._exit(0)
        if i == 1:
            say("ready")
attempt(loop)
"""


def ends(relay, mode, kind, harm, elements=20000):
    """What every rank says after the harm was done."""
    script = relay.script + SUMS.format(elements=elements)
    with Processes(script, 3, env={"HOROVOD_LINK_SECURITY": mode}, hosts=HOSTS) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        relay.attack(kind, harm)
        assert relay.done.wait(30)
        return [ranks.heard(rank) for rank in range(3)]


@pytest.mark.parametrize("mode", ["control", "integrity", "encrypt"])
@pytest.mark.parametrize("harm", [flip, repeat])
def test_an_altered_control_message_is_an_error_on_every_rank(mode, harm):
    with MiddleMan() as relay:
        for report in ends(relay, mode, LINK_CONTROL, harm):
            assert report["error"] == "HorovodInternalError", report
            assert "was altered on its way" in report["text"], report
            assert "a message from rank 0 on a" in report["text"] or "rank 1 on b" in report["text"], report


@pytest.mark.parametrize("mode, elements", [("control", 4), ("integrity", 1000), ("encrypt", 1000)])
@pytest.mark.parametrize("harm", [flip, repeat])
def test_an_altered_small_call_is_an_error_and_never_a_wrong_sum(mode, elements, harm):
    with MiddleMan() as relay:
        for report in ends(relay, mode, LINK_QUICK, harm, elements):
            assert report != "wrong sum"
            assert report["error"] == "HorovodInternalError" and "was altered on its way" in report["text"]


@pytest.mark.parametrize("mode", ["integrity", "encrypt"])
@pytest.mark.parametrize("harm", [flip, repeat])
def test_an_altered_byte_of_data_is_an_error_and_never_a_wrong_sum(mode, harm):
    with MiddleMan() as relay:
        for report in ends(relay, mode, LINK_DATA_OUT, harm):
            assert report != "wrong sum"
            assert report["error"] == "HorovodInternalError" and "was altered on its way" in report["text"]


def test_data_is_not_protected_unless_asked_for():
    """What docs/security.md says of the default: control messages are safe, data is not."""
    with MiddleMan() as relay:
        assert "wrong sum" in ends(relay, "control", LINK_DATA_OUT, flip)  # who sees it first ends the others


def blame_rank_0(data):
    return data.replace(b"lost rank 2 on c", b"lost rank 0 on a")


def test_an_altered_obituary_is_noticed():
    script = """
hvd.init()
hvd.barrier()
say("ready")
if hvd.rank() == 2:
    time.sleep(1000)
attempt(lambda: hvd.allreduce(np.ones(4), name="waits"))
"""
    with MiddleMan() as relay, Processes(relay.script + script, 3, hosts=["a", "b", "c"]) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        relay.attack(LINK_WATCH, blame_rank_0, between={0, 1})
        ranks.kill(2)  # rank 0 sees it and tells rank 1
        assert "Horovod lost rank 2 on c" in ranks.heard(0)["text"]
        report = ranks.heard(1)
        assert "a message from rank 0 on a was altered on its way" in report["text"], report


SECRETS = """
hvd.init()
data = np.frombuffer(b"the weights of the model" * 1000, np.uint8)
got = hvd.broadcast(data if hvd.rank() == 0 else np.zeros_like(data), 0, name="name of a layer")
say(bytes(got) == bytes(data))
hvd.barrier()
"""


@pytest.mark.parametrize("mode", ["control", "integrity", "encrypt"])
def test_what_can_be_read_on_the_wire(mode):
    with MiddleMan() as relay:
        env = {"HOROVOD_LINK_SECURITY": mode}
        with Processes(relay.script + SECRETS, 2, env=env, hosts=["a", "b"]) as ranks:
            assert [ranks.heard(rank) for rank in range(2)] == [True, True]
            assert ranks.finish() == [0, 0]
        seen = mode != "encrypt"
        assert (b"the weights of the model" in relay.overheard[LINK_DATA_OUT]) == seen
        assert (b"name of a layer" in relay.overheard[LINK_CONTROL]) == seen


def test_ranks_with_different_modes_do_not_start():
    script = """
if os.environ["HOROVOD_RANK"] == "1":
    os.environ["HOROVOD_LINK_SECURITY"] = "encrypt"
attempt(hvd.init)
"""
    with Processes(script, 2, hosts=["a", "b"]) as ranks:
        for rank in range(2):
            text = ranks.heard(rank)["text"]
            assert "rank 1 on b has HOROVOD_LINK_SECURITY=encrypt" in text and "control" in text


def test_without_libcrypto_several_hosts_do_not_start_and_say_what_to_install():
    script = "attempt(hvd.init)\n"
    env = {"HOROVOD_CRYPTO_LIBRARY": "/no/such/libcrypto.so"}
    with Processes(script, 2, env=env, hosts=["a", "b"]) as ranks:
        for rank in range(2):
            text = ranks.heard(rank)["text"]
            assert "libcrypto" in text and "Install OpenSSL's library" in text, text
    with Processes(script, 2, env=env) as ranks:  # one host: nothing to seal
        assert [ranks.heard(rank)["error"] for rank in range(2)] == [None, None]
