// SPDX-License-Identifier: Apache-2.0
#include "host/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "util/futex.h"
#include "util/status.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif

namespace hvd {
namespace {

constexpr uint64_t kMagic = 0x686f726f766f6431;  // "horovod1"
constexpr uint32_t kLayoutVersion = 5;

size_t page_multiple(size_t bytes) { return (std::max<size_t>(bytes, 4096) + 4095) & ~size_t{4095}; }

}  // namespace

int Segment::create(int local_size, size_t slot_bytes) {
  slot_bytes = page_multiple(slot_bytes);
  // By number: the wheel's libc baseline is older than the wrapper.
  UniqueFd file(static_cast<int>(syscall(SYS_memfd_create, "horovod", MFD_CLOEXEC)));
  if (!file) throw Refused(HVD_UNKNOWN, std::string("cannot create shared memory: ") + std::strerror(errno));
  SegmentHeader header{};
  header.magic = kMagic;
  header.version = kLayoutVersion;
  header.local_size = local_size;
  header.slot_bytes = slot_bytes;
  if (ftruncate(file.get(), static_cast<off_t>(total_bytes(local_size, slot_bytes))) != 0 ||
      pwrite(file.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    throw Refused(HVD_UNKNOWN, std::string("cannot size shared memory: ") + std::strerror(errno));
  fchmod(file.get(), 0600);
  return file.release();
}

Segment::Segment(UniqueFd file, int local_size, size_t slot_bytes) : local_size_(local_size) {
  slot_bytes_ = page_multiple(slot_bytes);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (file) {
    SegmentHeader header{};
    struct stat info{};
    bool good = pread(file.get(), &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
                header.magic == kMagic && header.version == kLayoutVersion && header.local_size == local_size &&
                fstat(file.get(), &info) == 0 &&
                static_cast<size_t>(info.st_size) == total_bytes(local_size, header.slot_bytes);
    if (!good)
      throw Refused(HVD_INVALID,
                    "the shared memory handed to this rank is not this job's, or was made by another "
                    "version of this package");
    slot_bytes_ = header.slot_bytes;
    flags = MAP_SHARED;
  }
  bytes_ = total_bytes(local_size_, slot_bytes_);
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (p == MAP_FAILED) throw Refused(HVD_UNKNOWN, std::string("cannot map shared memory: ") + std::strerror(errno));
  base_ = static_cast<char*>(p);
  // A forked child has no engine; it must not hold the job's memory either.
  madvise(base_, bytes_, MADV_DONTFORK);
}

Segment::~Segment() {
  if (base_) munmap(base_, bytes_);
}

bool Segment::shares_core(int me, CoreLeaver& core, double now) {
  note_core(me);  // it may have moved
  for (int other = 0; other < local_size_; ++other)
    if (other != me && on_my_core(other)) return shares_core_with(other, me, core, now);
  return false;
}

bool Segment::shares_core_with(int rival, int me, CoreLeaver& core, double now) {
  return me < rival || !make_way(me, core, now);
}

bool Segment::make_way(int me, CoreLeaver& core, double now) {
  cpu_set_t taken = no_cores();
  for (int other = 0; other < local_size_; ++other) {
    int seen = core_of(other);
    if (other != me && seen >= 0) CPU_SET(static_cast<size_t>(seen), &taken);
  }
  if (!core.leave(now, taken)) return false;
  note_core(me);
  return true;
}

void Segment::even_out(int me, CoreLeaver& core, double now) {
  note_core(me);
  std::vector<int> seen;
  for (int other = 0; other < local_size_; ++other) seen.push_back(core_of(other));
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;
  int target = evener_core(seen, me, mine);
  if (target < 0) return;
  cpu_set_t taken = mine;
  CPU_CLR(static_cast<size_t>(target), &taken);
  core.leave(now, taken);
  note_core(me);
}

void Segment::note_last(int local, std::initializer_list<std::string_view> parts) {
  char* at = rank(local).last;
  char* end = at + sizeof(RankState::last) - 1;
  for (std::string_view part : parts) {
    size_t n = std::min(part.size(), static_cast<size_t>(end - at));
    std::memcpy(at, part.data(), n);
    at += n;
  }
  *at = 0;
}

std::string Segment::last(int local) {
  const char* text = rank(local).last;
  return std::string(text, strnlen(text, sizeof(RankState::last)));
}

void Segment::abort(const std::string& text) {
  uint32_t expected = 0;
  if (header().aborted.compare_exchange_strong(expected, 1)) {
    size_t n = std::min(text.size(), sizeof header().abort_text - 1);
    std::memcpy(header().abort_text, text.data(), n);
    header().abort_text[n] = 0;
    header().aborted.store(2, std::memory_order_release);
  }
  for (int r = 0; r < local_size_; ++r) futex_wake_all(low_half(rank(r).progress));
  futex_wake_all(low_half(header().quick_round));
}

std::string Segment::abort_text() {
  // The writer only copies a few bytes between 1 and 2; if it died in between, say so.
  for (int i = 0; i < 1000 && header().aborted.load(std::memory_order_acquire) == 1; ++i) usleep(100);
  if (header().aborted.load(std::memory_order_acquire) != 2) return "the job was aborted";
  return header().abort_text;
}

}  // namespace hvd
