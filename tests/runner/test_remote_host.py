# SPDX-License-Identifier: Apache-2.0
"""Workers on another host: an agent at the other end of a channel, over pipes and over a socket.

The agents here are real ones on this machine; test_several_hosts.py has them behind ssh.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from launching import alive, environment, still_there

from horovod.rendezvous import auth
from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.errors import AuthenticationError
from horovod.rendezvous.readers import own
from horovod.runner import agent, agent_socket, remote_host
from horovod.runner.agent_socket import AgentListener
from horovod.runner.channel import ChannelError, PipeChannel, SocketChannel
from horovod.runner.host_runner import (
    STDOUT,
    HostLost,
    HostReady,
    HostUnreachable,
    WorkerExited,
    WorkerSpec,
)
from horovod.runner.remote_host import RemoteHost

SECRET = bytes(range(32))
SERVE = (
    "import sys; from horovod.runner.agent_socket import serve; "
    f"serve('127.0.0.1', int(sys.argv[1]), bytes({list(SECRET)}), host='far', tag=sys.argv[2])"
)


class Agents:
    """A launcher's listener, agents that call it, and what the host runners made of them report."""

    def __init__(self, network_timeout=30.0):
        self.network_timeout = network_timeout
        self.came, self.events, self.printed = queue.Queue(), queue.Queue(), queue.Queue()
        self.listener = AgentListener(SECRET, ["127.0.0.1"], self.came.put)
        self.processes, self.hosts = [], []

    def start(self, tag="7"):
        """A host runner over an agent in a process of its own."""
        command = [sys.executable, "-c", SERVE, str(self.listener.port), tag]
        process = subprocess.Popen(command, env=environment(ONLY_THERE="yes"))
        self.processes.append(process)
        channel = self.came.get(timeout=60)
        assert channel.facts["tag"] == tag and channel.facts["host"] == "far"
        env = {"COMMON": "1"}
        host = RemoteHost(
            "far", channel, lambda *a: self.printed.put(a), self.events.put, env, self.network_timeout
        )
        self.hosts.append(host)
        host.open()
        assert self.event() == HostReady("far", "calls itself far")
        return host

    def event(self):
        return self.events.get(timeout=60)

    def line(self):
        """The next thing that a worker printed."""
        while True:
            worker, channel, data = self.printed.get(timeout=60)
            if channel == STDOUT and data:
                return worker, data.decode().strip()

    def close(self):
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
        for host in self.hosts:
            host.terminate(0.0)
            host.close()
        self.listener.close()
        for process in self.processes:
            assert process.wait(60) is not None


@pytest.fixture
def agents():
    made = Agents()
    yield made
    made.close()


def spec(worker, script, **env):
    return WorkerSpec(worker, ["sh", "-c", script], {"COMMON": "1", **env}, "/tmp")


def test_workers_over_a_socket_are_started_and_ended_one_by_one(agents):
    host = agents.start()
    host.start(spec(0, "echo $COMMON $MINE $ONLY_THERE $PWD; sleep 1000", MINE="2"))
    assert agents.line() == (0, "1 2 yes /tmp")
    host.start(spec(1, "echo more; exit 3"))
    assert agents.line() == (1, "more") and agents.event() == WorkerExited("far", 1, 3)
    host.end(0)
    assert agents.event() == WorkerExited("far", 0, 128 + signal.SIGTERM)
    host.start(spec(2, "trap 'exit 8' USR1; echo; while :; do sleep 0.02; done"))
    agents.line()
    host.signal(signal.SIGUSR1)
    assert agents.event() == WorkerExited("far", 2, 8)


def test_several_agents_are_told_apart_by_their_tags(agents):
    for tag in ("3", "4"):
        agents.start(tag).start(spec(int(tag), "echo here"))
        assert agents.line() == (int(tag), "here")
        assert agents.event() == WorkerExited("far", int(tag), 0)


def test_the_secret_is_known_to_the_workers_but_not_sent(agents):
    host = agents.start()
    sent = []
    send = host._channel.send
    host._channel.send = lambda message: (sent.append(message), send(message))
    text = own.encode_secret(SECRET)
    host.start(spec(0, f"echo ${own.SECRET}", **{own.SECRET: text}))
    assert agents.line() == (0, text)
    assert len(sent) >= 1 and not any(text.encode() in message for message in sent)


def test_an_agent_hung_up_on_ends_its_workers(agents):
    host = agents.start()
    host.start(spec(0, "echo $$; exec sleep 1000"))
    pid = int(agents.line()[1])
    host.close()
    assert still_there([pid]) == [] and agents.processes[0].wait(60) == 0


def test_a_killed_agent_is_a_lost_host_and_leaves_no_worker(agents):
    host = agents.start()
    host.start(spec(0, "echo $$; exec sleep 1000"))
    pid = int(agents.line()[1])
    agents.processes[0].kill()
    event = agents.event()
    assert isinstance(event, HostLost) and "the connection broke" in event.why
    assert still_there([pid]) == []


def test_silence_is_measured_and_an_agent_gives_up_by_itself(monkeypatch):
    """Nothing gets through for a while, as when a cable is cut, but no connection breaks."""
    monkeypatch.setattr(remote_host, "_AGENT_PATIENCE_SECONDS", 0.0)
    agents = Agents(network_timeout=2.0)
    try:
        host = agents.start()
        host.start(spec(0, "echo $$; exec sleep 1000"))
        pid = int(agents.line()[1])
        send = host._channel.send
        host._channel.send = lambda message: None  # the cable is cut in one direction ...
        event = agents.event()
        assert isinstance(event, HostLost)
        why = r"it heard nothing from here for \d+ s and ended its workers: the network was cut"
        assert re.search(why, event.why), event.why
        assert agents.event().worker == 0 and still_there([pid]) == []
        host._channel.send = send
        agents.processes[0].wait(60)
        host = agents.start()
        host.start(spec(0, "echo"))
        agents.line()
        agents.processes[1].send_signal(signal.SIGSTOP)  # ... and here nothing comes back
        while host.silence() < 1.0:
            time.sleep(0.05)
    finally:
        agents.close()


def test_an_agent_is_patient_with_a_launcher_that_was_stopped(monkeypatch):
    monkeypatch.setattr(remote_host, "_AGENT_PATIENCE_SECONDS", 0.0)
    agents = Agents(network_timeout=2.0)
    try:
        host = agents.start()
        host.start(spec(0, "echo $$; exec sleep 1000"))
        pid = int(agents.line()[1])
        send, stopped = host._channel.send, threading.Event()

        def send_until_stopped(message):
            if not stopped.is_set():
                send(message)
            if agent.unpack(message)[0] == agent.PAUSE:
                stopped.set()  # from here on as if this process did not run

        host._channel.send = send_until_stopped
        host.pause()
        assert stopped.wait(60)
        time.sleep(3.0)
        assert alive(pid) and agents.events.empty()
        host._channel.send = send
    finally:
        agents.close()


def test_a_launcher_that_was_stopped_does_not_take_its_own_silence_for_the_hosts(agents, monkeypatch):
    host = agents.start()
    assert host.silence() < 5
    clock = time.monotonic() + 3600  # it was asleep for an hour
    monkeypatch.setattr(remote_host.time, "monotonic", lambda: clock)
    assert host.silence() == 0.0


def test_time_in_which_nobody_listened_is_no_silence(agents):
    host = agents.start()
    blocked = threading.Event()
    host._output = lambda *a: blocked.wait()
    host.start(spec(0, "echo much"))
    while host._listening_since is not None:
        time.sleep(0.01)
    assert host.silence() == 0.0
    blocked.set()


def test_another_version_on_a_host_is_named(agents, monkeypatch):
    monkeypatch.setattr(remote_host, "__version__", "0.0.1")
    with pytest.raises(AssertionError, match="install the same on all"):
        agents.start()


def test_commands_wait_for_the_agent_and_an_attempt_can_be_given_up():
    class Slow:
        is_private = True
        answered = threading.Event()

        def open(self):
            self.answered.wait()
            raise ChannelError("the job is ending")

        def close(self):
            self.answered.set()

    events = queue.Queue()
    host = RemoteHost("far", Slow(), lambda *a: None, events.put, {}, 30.0)
    host.open()
    host.start(spec(0, "true"))
    host.terminate()
    host.close()
    assert not host._reader.is_alive() and events.empty()


def test_a_host_that_cannot_be_reached_is_reported():
    class Nobody:
        is_private = True

        def open(self):
            raise ChannelError("no key of yours is accepted there")

        def close(self):
            pass

    events = queue.Queue()
    host = RemoteHost("far", Nobody(), lambda *a: None, events.put, {}, 30.0)
    host.open()
    assert events.get(timeout=60) == HostUnreachable("far", "no key of yours is accepted there")
    host.close()


def test_what_is_sent_to_an_agent(monkeypatch):
    """Common variables once, own ones per worker, nothing that describes this machine."""

    class Recorder:
        is_private = True
        sent = queue.Queue()

        def open(self):
            return {"version": remote_host.__version__, "host": "b"}

        def send(self, message):
            self.sent.put(agent.unpack(message))

        def receive(self):
            self.closed.wait()
            raise EOFError

        closed = threading.Event()

        def close(self):
            self.closed.set()

    env = {"COMMON": "1", "PWD": "/here", "SSH_CLIENT": "x", own.SECRET: "s"}
    host = RemoteHost("b", Recorder(), lambda *a: None, lambda event: None, env, 30.0)
    host.open()
    for rank in (4, 5):
        host.start(WorkerSpec(rank, ["python", "a b"], dict(env, HOROVOD_RANK=str(rank)), "/cwd"))
    kind, _, setup = Recorder.sent.get(timeout=60)
    assert kind == agent.SETUP
    assert json.loads(setup) == {"env": {"COMMON": "1", own.SECRET: "s"}, "silence": 32.0}
    for rank in (4, 5):
        kind, worker, start = Recorder.sent.get(timeout=60)
        assert (kind, worker) == (agent.START, rank)
        own_env = {"HOROVOD_RANK": str(rank)}
        assert json.loads(start) == {"command": ["python", "a b"], "env": own_env, "cwd": "/cwd"}
    host.close()


# ----------------------------------------------------------------------------------- the channels --


def signed(sock, directions):
    """A socket's channel that signs as one of the two ends."""
    return SocketChannel(sock, *(wire.Signer(b"key", direction.encode()) for direction in directions))


def pair(kind):
    """Two ends of a channel, and a socket or descriptor in between."""
    if kind == "pipes":
        there, back = os.pipe(), os.pipe()
        return PipeChannel(back[0], there[1]), PipeChannel(there[0], back[1])
    ours, theirs = socket.socketpair()
    return signed(ours, "CS"), signed(theirs, "SC")


@pytest.mark.parametrize("kind", ["pipes", "socket"])
def test_messages_arrive_whole_and_in_order(kind):
    one, other = pair(kind)
    messages = [b"", b"x", os.urandom(300_000), b"\0" * 10]
    sender = threading.Thread(target=lambda: [one.send(message) for message in messages])
    sender.start()
    assert [other.receive() for _ in messages] == messages
    sender.join()
    assert other.receive(timeout=0.0) is None
    other.send(b"back")
    assert one.receive(timeout=60) == b"back"


def test_a_socket_that_is_tampered_with_is_hung_up_on():
    ours, theirs = socket.socketpair()
    one = signed(ours, "CS")
    one.send(b"end")
    one.send(b"end")
    data = bytearray(theirs.recv(1000))
    for change in ("altered", "repeated"):
        a, b = socket.socketpair()
        half = len(data) // 2
        changed = data[:half] + data[:half] if change == "repeated" else data.replace(b"end", b"and", 1)
        a.sendall(changed)
        reader = signed(b, "SC")
        with pytest.raises(ConnectionError, match="altered"):
            for _ in range(2):
                reader.receive(60)


def test_what_is_not_an_agent_of_ours_is_not_believed():
    read_end, write_end = os.pipe()
    os.write(write_end, b"\xff" * 100)
    with pytest.raises(EOFError, match="not an agent of ours"):
        PipeChannel(read_end, -1).receive()


def test_strangers_at_the_listener_get_nothing_and_keep_nobody_out(agents):
    strangers = [socket.create_connection(("127.0.0.1", agents.listener.port)) for _ in range(20)]
    for number, stranger in enumerate(strangers):
        stranger.sendall([b"GET / HTTP/1.1\r\n\r\n", auth.hello() + bytes(32), b"\0", b""][number % 4])
    agents.start().start(spec(0, "echo here"))
    assert agents.line() == (0, "here")
    assert agents.came.empty()
    for stranger in strangers:
        stranger.close()


def test_a_wrong_secret_is_refused_on_both_sides(agents):
    with pytest.raises(AuthenticationError):
        agent_socket.serve("127.0.0.1", agents.listener.port, bytes(32))
    other_purpose = socket.create_connection(("127.0.0.1", agents.listener.port))
    with other_purpose, pytest.raises(AuthenticationError):
        auth.connect(other_purpose, SECRET, b"link")
    assert agents.came.empty()
