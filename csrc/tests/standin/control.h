// SPDX-License-Identifier: Apache-2.0
// How a test tells the stand-ins what to do. Environment variables say the same to processes that a test starts:
//
//   STANDIN_GPUS=4               how many devices there are (default 8)
//   STANDIN_MPS=0                whether they run several processes at a time (default 1)
//   STANDIN_DELAY_US=50          how late a stream begins each piece of its work, at most
//   STANDIN_MEMORY=1000000       bytes a device has
//   STANDIN_FAIL=call:code:n     a call fails once with a code after n that did not, e.g. cuLaunchKernel:719:2
//   STANDIN_NCCL_VERSION=21400
//   STANDIN_NCCL_FAIL=call:code:text
//   STANDIN_NCCL_US=2000         how long a reduction takes at least
#pragma once

extern "C" {

// Streams start nothing new while they are paused.
void standin_pause(int paused);
// As STANDIN_FAIL.
void standin_fail(const char* call, int code, int after);
// Calls of this name stop before they do anything, until they are let go: a thread that the system does not run.
void standin_hold(const char* call, int held);
// Threads that stand there now.
int standin_held(void);
void standin_set_mps(int enabled);
// Every device says that it is the same GPU.
void standin_share_gpus(int shared);
void standin_set_delay(int microseconds);
// Calls so far, e.g. of "cuStreamSynchronize".
int standin_calls(const char* call);
// Bytes of device memory that are allocated now.
unsigned long long standin_allocated(void);
// The number of the device whose context is current, -1 if none is. For the stand-in for NCCL.
int standin_current_device(void);
// As STANDIN_NCCL_FAIL; "" clears it.
void standin_nccl_fail(const char* call, int code, const char* text);
void standin_nccl_version(int version);
// Collectives hang until they are aborted.
void standin_nccl_hang(int hang);
}
