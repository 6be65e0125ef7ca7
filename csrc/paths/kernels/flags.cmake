# SPDX-License-Identifier: Apache-2.0
#
# Compiler flags of the kernel files: one file per instruction-set level, chosen at run time. Included from
# every directory whose targets compile these files, since CMake keeps source properties per directory.
set(kernels ${CMAKE_SOURCE_DIR}/csrc/paths/kernels)
# -O3 also in debug builds, for speed; no contraction, so that every level gives the same bits.
# Vectors are passed in registers between functions that are always inlined: no ABI to warn about.
set(flags -O3 -ffp-contract=off -Wno-psabi)
set_source_files_properties(${kernels}/level_base.cc PROPERTIES COMPILE_OPTIONS "${flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(avx2 -mavx2 -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set_source_files_properties(${kernels}/level_avx2.cc PROPERTIES COMPILE_OPTIONS "${flags};${avx2}")
  set_source_files_properties(${kernels}/level_avx512.cc PROPERTIES COMPILE_OPTIONS "${flags};${avx512}")
endif()
