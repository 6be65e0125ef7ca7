# SPDX-License-Identifier: Apache-2.0
"""Requests: what cannot be sent is refused with a ValueError that says what it is."""

from __future__ import annotations

import ctypes
import struct

import pytest

from horovod.common import constants as c
from horovod.common.requests import Standing, request


@pytest.mark.parametrize(
    "what, arguments",
    [
        ("invalid root rank 1099511627776", {"root": 1 << 40}),
        ("invalid root rank -2147483649", {"root": -(1 << 31) - 1}),
        ("root_rank=1.5", {"root": 1.5}),
        ("root_rank='0'", {"root": "0"}),
        ("op=1099511627776", {"op": 1 << 40}),
        ("process_set=1099511627776", {"process_set": 1 << 40}),
        ("prescale_factor=", {"prescale": 10**400}),
        ("postscale_factor='x'", {"postscale": "x"}),
        ("splits=", {"splits": [1 << 70]}),
        ("splits=", {"splits": [1.5]}),
    ],
)
def test_numbers_that_do_not_fit_are_named(what, arguments):
    with pytest.raises(ValueError, match="tensor.x") as refused:
        request(c.BROADCAST, "tensor.x", c.FLOAT32, (1,), 0, **arguments)
    assert what in str(refused.value)


@pytest.mark.parametrize("name, text", [("a\0b", "NUL"), ("a\ud800b", "not valid Unicode")])
def test_names_that_cannot_be_sent_are_refused(name, text):
    with pytest.raises(ValueError, match=text):
        request(c.ALLREDUCE, name, c.FLOAT32, (1,), 0)


def text_at(address: int) -> str:
    return ctypes.string_at(address).decode()


def test_standing_requests_keep_what_they_point_to():
    names = [f"standing.{i}.{'x' * 100}" for i in range(3)]
    standing = Standing([request(c.ALLREDUCE, name, c.FLOAT32, (i, 7), 0) for i, name in enumerate(names)])
    standing.reshape(1, (5, 6, 8))
    for i in range(20_000):  # drops the caches that the requests were made from
        request(c.ALLREDUCE, f"other.{i}", c.FLOAT32, (i,), 0)
    assert [text_at(one.name) for one in standing.requests] == names
    shapes = [list((ctypes.c_int64 * one.ndim).from_address(one.shape)) for one in standing.requests]
    assert shapes == [[0, 7], [5, 6, 8], [2, 7]]


def test_words_of_a_standing_request_are_its_addresses():
    standing = Standing([request(c.ALLREDUCE, "words", c.FLOAT32, (1,), 11, 22)])
    assert standing.words[Standing.INPUT] == 11 and standing.words[Standing.OUTPUT] == 22
    standing.words[Standing.INPUT] = 33
    assert standing.requests[0].input == 33
    assert len(standing.words) * struct.calcsize("Q") == ctypes.sizeof(standing.requests)
