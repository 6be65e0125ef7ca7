// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/deferred_done.h"

#include <link.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

namespace horovod::tensorflow {
namespace {

std::atomic<int> last_movable{-1};
std::atomic<bool> refuse{false};

using Ranges = std::vector<std::pair<uintptr_t, uintptr_t>>;

int collect_code(dl_phdr_info* info, size_t, void* ranges) {
  if (!info->dlpi_name || !strstr(info->dlpi_name, "tensorflow")) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
    uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    static_cast<Ranges*>(ranges)->emplace_back(begin, begin + header.p_memsz);
  }
  return 0;
}

bool in_tensorflow(const void* code) {
  // Walked once: dladdr would search TensorFlow's whole symbol table, over a millisecond a call.
  static const Ranges* ranges = [] {
    auto* found = new Ranges;
    dl_iterate_phdr(collect_code, found);
    return found;
  }();
  auto address = reinterpret_cast<uintptr_t>(code);
  for (const auto& [begin, end] : *ranges)
    if (address >= begin && address < end) return true;
  return false;
}

constexpr int kDestroyFunctor = 3;  // std::_Manager_operation::__destroy_functor

}  // namespace

DeferredDone::DeferredDone(TF_AsyncOpKernelDoneCallback* done) {
  auto* source = reinterpret_cast<FunctionObject*>(done);
  const bool movable = !refuse.load(std::memory_order_relaxed) &&
                       in_tensorflow(reinterpret_cast<const void*>(source->manage)) &&
                       in_tensorflow(reinterpret_cast<const void*>(source->invoke));
  last_movable.store(movable, std::memory_order_relaxed);
  if (!movable) {
    waiting_ = new Waiting{done, {}, {}};
    return;
  }
  function_ = *source;
  source->manage = nullptr;  // the source is now an empty function: its destructor does nothing
  source->invoke = nullptr;
}

void DeferredDone::run() {
  if (can_defer()) {
    function_.invoke(function_.storage);
    function_.manage(function_.storage, function_.storage, kDestroyFunctor);
    return;
  }
  std::lock_guard<std::mutex> lock(waiting_->mutex);
  waiting_->finished = true;
  waiting_->changed.notify_one();
}

void DeferredDone::block_until_run() {
  {
    std::unique_lock<std::mutex> lock(waiting_->mutex);
    waiting_->changed.wait(lock, [this] { return waiting_->finished; });
  }
  auto* original = waiting_->original;
  delete waiting_;
  tf.TF_RunAsyncOpKernelDoneCallback(original);
}

int last_done_was_movable() { return last_movable.load(std::memory_order_relaxed); }
void refuse_to_move(bool value) { refuse.store(value, std::memory_order_relaxed); }

}  // namespace horovod::tensorflow
