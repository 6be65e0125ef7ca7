// SPDX-License-Identifier: Apache-2.0
#include "paths/host/mpi_library.h"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "util/status.h"

namespace hvd {
namespace {

std::unique_ptr<MpiLibrary> attached;

template <typename Function>
bool find(void* library, const char* name, Function* where) {
  *reinterpret_cast<void**>(where) = dlsym(library, name);
  return *where != nullptr;
}

bool find_calls(void* library, MpiLibrary* mpi) {
  return find(library, "MPI_Isend", &mpi->isend) && find(library, "MPI_Irecv", &mpi->irecv) &&
         find(library, "MPI_Test", &mpi->test) && find(library, "MPI_Cancel", &mpi->cancel) &&
         find(library, "MPI_Request_free", &mpi->request_free) &&
         find(library, "MPI_Type_create_hindexed", &mpi->type_create_hindexed) &&
         find(library, "MPI_Type_commit", &mpi->type_commit) && find(library, "MPI_Type_free", &mpi->type_free) &&
         find(library, "MPI_Query_thread", &mpi->query_thread);
}

// The constants that the families do not share; the values are those of their mpi.h.
void set_constants(void* library, MpiLibrary* mpi) {
  int level = 0;
  mpi->query_thread(&level);
  if (void* byte = dlsym(library, "ompi_mpi_byte")) {  // Open MPI, Spectrum MPI
    mpi->byte = reinterpret_cast<uintptr_t>(byte);
    mpi->status_ignore = nullptr;
    mpi->multiple = level >= 3;
    return;
  }
  int major = -1;
  int minor = -1;
  int (*abi_version)(int*, int*) = nullptr;
  if (find(library, "MPI_Abi_get_version", &abi_version)) abi_version(&major, &minor);
  if (major >= 1) {  // the MPI-5 standard ABI
    mpi->byte = 0x247;
    mpi->status_ignore = nullptr;
    mpi->multiple = level >= 4096;
  } else {  // MPICH and its relatives
    mpi->byte = 0x4c00010d;
    mpi->status_ignore = reinterpret_cast<void*>(1);
    mpi->multiple = level >= 3;
  }
}

}  // namespace

MpiLibrary* mpi_library() { return attached.get(); }

void attach_mpi_library(const char* path, MpiLibrary::Handle communicator) {
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  if (!library) throw Refused(HVD_INVALID, std::string(path) + " is not loaded in this process");
  auto mpi = std::make_unique<MpiLibrary>();
  if (!find_calls(library, mpi.get())) throw Refused(HVD_INVALID, std::string(path) + " lacks calls of MPI");
  set_constants(library, mpi.get());
  mpi->communicator = communicator;
  attached = std::move(mpi);
}

}  // namespace hvd
