# SPDX-License-Identifier: Apache-2.0
"""What ranks print: whole lines with a prefix, files, tails, bounded memory."""

from __future__ import annotations

import io
import re

import pytest

from horovod.runner import views
from horovod.runner.host_runner import STDERR, STDOUT
from horovod.runner.output import Output


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
    out, err, _ = collect([(0, STDOUT, b"a\nb\n"), (1, STDERR, b"c\n"), (1, STDOUT, b"d\r\n")])
    assert out == "[0]<stdout>:a\n[0]<stdout>:b\n[1]<stdout>:d\r\n" and err == "[1]<stderr>:c\n"


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


BAR = [b"\r %d%%|####|" % percent for percent in (10, 50, 90)] + [b"\r100%|####|\n"]


def test_a_progress_bar_is_one_whole_line_in_a_log(tmp_path):
    """Two ranks draw bars at a time and print in between: each bar once, whole, with its rank."""
    chunks = [(rank, STDERR, piece) for piece in BAR for rank in range(2)]
    chunks.insert(3, (0, STDOUT, b"epoch 1\n"))
    out, err, _ = collect(chunks, directory=str(tmp_path))
    assert out == "[0]<stdout>:epoch 1\n" and err == "[0]<stderr>:100%|####|\n[1]<stderr>:100%|####|\n"
    assert (tmp_path / "rank.1" / "stderr").read_text() == "[1]<stderr>:100%|####|\n"


def test_a_long_progress_bar_shows_up_in_a_log_now_and_then(monkeypatch):
    monkeypatch.setattr(views, "_LOG_SECONDS", 0.0)
    _, err, _ = collect([(0, STDERR, piece) for piece in BAR[:2] + BAR[1:2] + [b"\n"]])
    assert err == "[0]<stderr>: 10%|####|\n[0]<stderr>: 50%|####|\n"  # the last state not twice


def test_a_bar_that_never_ends_is_shown_at_the_end():
    _, err, sink = collect([(0, STDERR, piece) for piece in BAR[:3]])
    assert err == "[0]<stderr>: 90%|####|" and sink.tail(0) == [" 90%|####|"]


class Screen:
    """What a person sees after these bytes: carriage returns, newlines and "clear to the end of the line"."""

    def __init__(self, text):
        self.rows = [""]
        at = 0
        for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.|\n|\r", text):
            if piece == "\n":
                self.rows.append("")
                at = 0
            elif piece == "\r":
                at = 0
            elif piece == "\x1b[K":
                self.rows[-1] = self.rows[-1][:at]
            elif len(piece) == 1:
                self.rows[-1] = self.rows[-1][:at] + piece + self.rows[-1][at + 1 :]
                at += 1


def test_a_terminal_keeps_the_newest_state_of_a_bar_below_the_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(views, "_DRAW_SECONDS", 0.0)
    terminal = Terminal()  # as standard output and standard error, as in a shell
    output = Output(2, stdout=terminal, stderr=terminal)
    seen = []
    story = [
        (0, STDERR, BAR[0]), (1, STDOUT, b"hello\n"), (0, STDERR, BAR[1]), (1, STDERR, b"\rother 7%"),
        (1, STDOUT, b"bye\n"), (0, STDERR, BAR[3]), (1, STDERR, b"\n"),
    ]  # fmt: skip
    for event in story:
        output.feed(*event)
        seen.append(Screen(terminal.getvalue()).rows)
    output.close()
    lines = ["[1]<stdout>:hello", "[1]<stdout>:bye", "[0]<stderr>:100%|####|", "[1]<stderr>:other 7%"]
    assert seen == [
        ["[0]<stderr>: 10%|####|"],
        [lines[0], "[0]<stderr>: 10%|####|"],
        [lines[0], "[0]<stderr>: 50%|####|"],
        [lines[0], "[1]<stderr>:other 7%"],
        [lines[0], lines[1], "[1]<stderr>:other 7%"],
        [*lines[:3], "[1]<stderr>:other 7%"],
        [*lines, ""],
    ]


def test_a_bar_is_cut_to_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    output = Output(1, stdout=terminal, stderr=terminal)
    output.feed(0, STDOUT, b"\r\x1b[32m" + "é".encode() * 200)
    (row,) = Screen(terminal.getvalue()).rows
    assert len(row) == 79 and row.endswith("é") and terminal.getvalue().endswith("\x1b[0m\r")


def test_where_it_is_said_that_something_cannot_be_written():
    """On standard error; if that is what fails, on standard output; the lines go on elsewhere."""
    for broken in (STDOUT, STDERR):
        good = io.StringIO()
        with open("/dev/full", "w") as full:
            streams = (
                {"stdout": full, "stderr": good} if broken == STDOUT else {"stdout": good, "stderr": full}
            )
            output = Output(1, **streams)
            for _ in range(3):
                output.feed(0, broken, b"lost\n")
            output.feed(0, STDOUT + STDERR - broken, b"kept\n")
            output.close()
        first, last = good.getvalue().splitlines()
        name = "output" if broken == STDOUT else "error"
        assert first.startswith(f"horovodrun: cannot write to standard {name}: No space left on device")
        assert last.endswith(":kept") and output.tail(0) == ["lost"] * 3 if broken == STDERR else ["kept"]


@pytest.mark.parametrize("where", ["/proc/no", "/dev/null/x"])
def test_a_folder_that_cannot_be_made_is_named(where):
    with pytest.raises(ValueError, match=f"cannot write to --output-filename {where}: {where}"):
        Output(2, where, stdout=io.StringIO(), stderr=io.StringIO())
