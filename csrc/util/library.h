// SPDX-License-Identifier: Apache-2.0
// Functions of libraries that are found at run time.
#pragma once

#include <dlfcn.h>

namespace hvd {

template <typename Pointer>
bool find_symbol(void* library, const char* name, Pointer* where) {
  *reinterpret_cast<void**>(where) = dlsym(library, name);
  return *where != nullptr;
}

}  // namespace hvd
