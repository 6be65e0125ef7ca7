# SPDX-License-Identifier: Apache-2.0
"""When the heap is left alone."""

from __future__ import annotations

import ctypes
import platform

import pytest

from horovod.common.heap import keep_freed_memory

GLIBC = platform.libc_ver()[0] == "glibc"


def test_the_heap_can_be_told_to_keep_memory():
    assert keep_freed_memory({"HOROVOD_HEAP_KEEP_BYTES": str(1 << 30)}) is GLIBC
    assert keep_freed_memory({}) is GLIBC


@pytest.mark.parametrize(
    "variables",
    [
        {"HOROVOD_HEAP_KEEP_BYTES": "0"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_THRESHOLD_": "65536"},
        {"GLIBC_TUNABLES": "glibc.cpu.x86_ibt=off:glibc.malloc.trim_threshold=0"},
    ],
)
def test_what_somebody_has_set_stays(variables, monkeypatch):
    class Library:
        def mallopt(self, parameter, value):
            raise AssertionError("the heap was changed")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert keep_freed_memory(variables) is False


def test_an_allocator_without_mallopt(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_freed_memory({}) is False


def test_a_wrong_number_is_refused_by_name():
    with pytest.raises(ValueError, match="HOROVOD_HEAP_KEEP_BYTES"):
        keep_freed_memory({"HOROVOD_HEAP_KEEP_BYTES": "-1"})
