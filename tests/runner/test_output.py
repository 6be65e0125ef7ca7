# SPDX-License-Identifier: Apache-2.0
"""What ranks print: whole lines with a prefix, files, tails, bounded memory."""

from __future__ import annotations

import io
import re

import pytest

from horovod.runner import output as output_module
from horovod.runner.output import Output
from horovod.runner.workers import STDERR, STDOUT


class Terminal(io.StringIO):
    def isatty(self):
        return True


def collect(chunks, **options):
    out, err = io.StringIO(), io.StringIO()
    sink = Output(2, stdout=out, stderr=err, **options)
    for rank, channel, data in chunks:
        sink.feed(rank, channel, data)
    sink.close()
    return out.getvalue(), err.getvalue(), sink


def test_lines_get_their_rank():
    out, err, _ = collect([(0, STDOUT, b"a\nb\n"), (1, STDERR, b"c\n"), (1, STDOUT, b"d\r")])
    assert out == "[0]<stdout>:a\n[0]<stdout>:b\n[1]<stdout>:d\r" and err == "[1]<stderr>:c\n"


def test_lines_of_ranks_never_mix():
    text = "".join(f"line {i} of rank %d äöü€\n" for i in range(50))
    data = [(text.replace("%d", str(rank))).encode() for rank in range(2)]
    chunks = []
    for i in range(0, max(map(len, data)), 7):  # cuts lines and characters anywhere
        chunks += [(rank, STDOUT, data[rank][i : i + 7]) for rank in range(2) if data[rank][i : i + 7]]
    out, _, _ = collect(chunks)
    for rank in range(2):
        mine = [line.split(":", 1)[1] for line in out.splitlines() if line.startswith(f"[{rank}]")]
        assert mine == data[rank].decode().splitlines()


def test_an_unterminated_last_line_is_kept_apart():
    out, _, _ = collect(
        [
            (0, STDOUT, b"end"),
            (0, STDOUT, b""),
            (1, STDOUT, b"next\n"),
            (1, STDOUT, b"last"),
            (1, STDOUT, b""),
        ]
    )
    assert out == "[0]<stdout>:end\n[1]<stdout>:next\n[1]<stdout>:last"


def test_timestamps_come_first():
    out, _, _ = collect([(0, STDOUT, b"hello\n")], timestamps=True)
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:hello\n", out)


def test_colour_only_on_a_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    sink = Output(2, stdout=terminal, stderr=io.StringIO())
    sink.feed(1, STDOUT, b"x\n")
    sink.close()
    assert re.fullmatch(r"\x1b\[\d+m\[1\]<stdout>:\x1b\[0mx\n", terminal.getvalue())


@pytest.mark.parametrize("size, folder", [(1, "rank.0"), (10, "rank.3"), (11, "rank.03"), (101, "rank.003")])
def test_files(tmp_path, size, folder):
    rank = min(3, size - 1)
    sink = Output(size, str(tmp_path / "logs"), stdout=io.StringIO(), stderr=io.StringIO())
    sink.feed(rank, STDOUT, b"a\nb")
    sink.feed(rank, STDERR, b"c\n")
    sink.close()
    assert (tmp_path / "logs" / folder / "stdout").read_bytes() == b"[%d]<stdout>:a\n[%d]<stdout>:b" % (
        rank,
        rank,
    )
    assert (tmp_path / "logs" / folder / "stderr").read_bytes() == b"[%d]<stderr>:c\n" % rank
    assert len(list((tmp_path / "logs").iterdir())) == size


def test_tail_prefers_standard_error():
    lines = b"".join(b"%d\n" % i for i in range(100))
    _, _, sink = collect([(0, STDOUT, lines)])
    assert sink.tail(0) == [str(i) for i in range(80, 100)] and sink.tail(1) == []
    _, _, sink = collect([(0, STDOUT, lines), (0, STDERR, b"Traceback\nKeyError\n")])
    assert sink.tail(0) == ["Traceback", "KeyError"]


def test_an_endless_line_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(output_module, "_MAX_LINE", 1000)
    sink = Output(1, stdout=io.StringIO(), stderr=io.StringIO())
    for _ in range(1000):
        sink.feed(0, STDOUT, b"x" * 100)
        assert sum(map(len, sink._rest.values())) < 1100
    sink.close()
