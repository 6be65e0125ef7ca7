// SPDX-License-Identifier: Apache-2.0
// The calls of MPI that the transport needs, found at run time in the library given to hvd_mpi_attach. One
// declaration serves three families: handles travel as 64-bit numbers, in whose low half MPICH's integer
// handles sit, and whose value is the address of an object in Open MPI.
#pragma once

#include <cstdint>
#include <mutex>

namespace hvd {

struct MpiLibrary {
  using Handle = uint64_t;

  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, void*);
  int (*cancel)(Handle*);
  int (*request_free)(Handle*);
  int (*type_create_hindexed)(int, const int*, const intptr_t*, Handle, Handle*);
  int (*type_commit)(Handle*);
  int (*type_free)(Handle*);
  int (*query_thread)(int*);

  Handle communicator;
  Handle byte;
  void* status_ignore;
  // Held around every call unless MPI allows several threads at a time. It then still must allow calls from
  // different threads one after another, which the bootstrap has checked.
  std::mutex one_at_a_time;
  bool multiple;
};

// hvd_mpi_attach. Throws Refused when calls are missing there.
void attach_mpi_library(const char* path, MpiLibrary::Handle communicator);
// The attached library, or nullptr.
MpiLibrary* mpi_library();

}  // namespace hvd
