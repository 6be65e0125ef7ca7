# SPDX-License-Identifier: Apache-2.0
"""Places that output goes to, and what happens when it cannot: nothing raises, nothing waits for ever."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import threading

import pytest

from horovod.runner import sinks
from horovod.runner.sinks import Sink, open_file


@pytest.fixture
def pipe():
    read_end, write_end = os.pipe()
    ends = {read_end, write_end}
    yield read_end, write_end, ends
    for end in ends:
        os.close(end)


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for 64 KiB."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"no file system of its own: {made.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_device_without_room_is_complained_about_once(monkeypatch):
    monkeypatch.setattr(sinks, "_RETRY_SECONDS", 0.0)
    sink = Sink("standard output", os.open("/dev/full", os.O_WRONLY))
    said = [sink.write(b"line\n") for _ in range(5)]
    assert said[0] == (
        "cannot write to standard output: No space left on device. It is dropped there; the job goes on"
    )
    assert said[1:] == [None] * 4 and not sink.is_dead
    sink.close()


def test_a_full_disk_is_used_again_when_there_is_room(small_disk, monkeypatch):
    monkeypatch.setattr(sinks, "_RETRY_SECONDS", 0.0)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(48 << 10))
    sink = open_file(str(small_disk / "log"))
    line = b"x" * 99 + b"\n"
    said = [sink.write(line * 10) for _ in range(40)]
    assert [text is None for text in said].count(False) == 1
    ballast.unlink()
    assert sink.write(b"more\n").startswith(f"there is room for {small_disk}/log again; ")
    assert sink.write(b"and more\n") is None
    sink.close()
    *before, note, more, again = (small_disk / "log").read_bytes().splitlines(keepends=True)
    missing = 400 - sum(one == line for one in before)
    assert note.startswith(b"horovodrun: ") and note.endswith(b" lines are missing here: there was no room\n")
    assert abs(int(note.split()[1]) - missing) <= 10  # the block in which the disk became full counts whole
    assert (more, again) == (b"more\n", b"and more\n")


def test_a_closed_pipe_is_given_up(pipe):
    read_end, write_end, ends = pipe
    sink = Sink("standard output", write_end)
    assert sink.write(b"a\n") is None
    os.close(read_end)
    ends.remove(read_end)
    assert "cannot write to standard output: Broken pipe" in sink.write(b"b\n")
    assert sink.is_dead and sink.write(b"c\n") is None


def test_a_closed_terminal_is_given_up():
    master, slave = pty.openpty()
    sink = Sink("standard error", slave)
    assert sink.is_terminal and sink.write(b"a\n") is None
    os.close(master)
    assert "cannot write to standard error: Input/output error" in sink.write(b"b\n")
    assert sink.is_dead
    os.close(slave)


def test_a_closed_descriptor_is_given_up():
    descriptor = os.open(os.devnull, os.O_WRONLY)
    sink = Sink("standard output", descriptor)
    os.close(descriptor)
    assert "Bad file descriptor" in sink.write(b"a\n") and sink.is_dead


def test_nothing_is_written_where_there_is_nothing():
    assert Sink("standard error", stream=None).is_dead
    closed = io.StringIO()
    closed.close()
    assert "I/O operation on closed file" in Sink("standard output", stream=closed).write(b"a\n")


def test_whoever_reads_slowly_is_waited_for(pipe):
    read_end, write_end, _ = pipe
    sink = Sink("standard output", write_end)
    data = b"".join(b"%d\n" % i for i in range(100_000))  # more than a pipe holds
    writer = threading.Thread(target=sink.write, args=(data,))
    writer.start()
    got = b""
    while len(got) < len(data):
        got += os.read(read_end, 1000)
    writer.join(30)
    assert got == data


def test_whoever_does_not_read_is_not_waited_for_at_the_end(pipe):
    _, write_end, _ = pipe
    sink = Sink("standard output", write_end)
    writer = threading.Thread(target=sink.write, args=(bytes(1 << 20),))
    writer.start()
    assert sink.write(b"a word\n", patience=0.1) is None  # the reader does not even take this
    assert writer.is_alive()
    sink.hurry(0.1)
    writer.join(30)
    assert not writer.is_alive() and not sink.is_dead


def test_the_same_place_is_recognised(tmp_path, pipe):
    read_end, write_end, _ = pipe
    with open(tmp_path / "a", "w") as a, open(tmp_path / "b", "w") as b, open(tmp_path / "a", "a") as again:
        sink = Sink("a", stream=a)
        assert sink.same_place(Sink("again", stream=again)) and not sink.same_place(Sink("b", stream=b))
    assert Sink("o", write_end).same_place(Sink("e", write_end))
    text = io.StringIO()
    assert Sink("o", stream=text).same_place(Sink("e", stream=text))
    assert not Sink("o", stream=text).same_place(Sink("e", stream=io.StringIO()))


def test_what_the_program_printed_itself_comes_first(tmp_path):
    with open(tmp_path / "out", "w") as out:
        sink = Sink("standard output", stream=out)
        print("mine", file=out)
        sink.write(b"the ranks'\n")
    assert (tmp_path / "out").read_text() == "mine\nthe ranks'\n"
