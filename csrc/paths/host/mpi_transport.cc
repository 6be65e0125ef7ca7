// SPDX-License-Identifier: Apache-2.0
// Bytes between hosts over the MPI that started the job: one non-blocking send and one receive a step, on a
// communicator of our own, so that the user's messages and ours never meet.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <string>

#include "paths/host/mpi_library.h"
#include "paths/host/transport.h"
#include "util/status.h"

namespace hvd {
namespace {

using Handle = MpiLibrary::Handle;
using Clock = std::chrono::steady_clock;

// MPI counts with int; a block of a datatype stays well below it.
constexpr size_t kMaxBlock = size_t{1} << 30;
// The standard promises tags up to 32767.
constexpr int kTags = 32768;
constexpr int kHops = 32;

// The pieces of one direction as one message: a plain buffer if there is just one, else a datatype of absolute
// addresses. The two ends may cut the same bytes differently.
class Message {
 public:
  Message(MpiLibrary* mpi, const Pieces& pieces) : mpi_(mpi) {
    for (const Piece& piece : pieces) {
      for (size_t at = 0; at < piece.bytes; at += kMaxBlock) {
        lengths_.push_back(static_cast<int>(std::min(kMaxBlock, piece.bytes - at)));
        addresses_.push_back(reinterpret_cast<intptr_t>(piece.data + at));
      }
    }
    if (lengths_.size() == 1) {
      data = reinterpret_cast<void*>(addresses_[0]);
      count = lengths_[0];
      type = mpi->byte;
    } else if (lengths_.size() > 1) {
      mpi->type_create_hindexed(static_cast<int>(lengths_.size()), lengths_.data(), addresses_.data(), mpi->byte,
                                &type);
      mpi->type_commit(&type);
      count = 1;
      owned_ = true;
    }
  }
  ~Message() {
    if (owned_) mpi_->type_free(&type);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  bool empty() const { return lengths_.empty(); }

  void* data = nullptr;  // with a datatype of absolute addresses: MPI_BOTTOM, which is 0 in every family
  int count = 0;
  Handle type = 0;

 private:
  MpiLibrary* mpi_;
  std::vector<int> lengths_;
  std::vector<intptr_t> addresses_;
  bool owned_ = false;
};

class MpiTransport : public Transport {
 public:
  MpiTransport(MpiLibrary* mpi, int process_set, std::vector<int> column_ranks, int me, std::function<void()> check)
      : mpi_(mpi), process_set_(process_set), ranks_(std::move(column_ranks)), me_(me), check_(std::move(check)) {}

  void exchange(int hop, const Pieces& out, const Pieces& in) override {
    int n = static_cast<int>(ranks_.size());
    int distance = (1 << hop) % n;
    int tag = (process_set_ * kHops + hop) % kTags;
    std::unique_lock<std::mutex> turn = take_turn();
    Message sending(mpi_, out);
    Message receiving(mpi_, in);
    Handle requests[2] = {0, 0};
    bool open[2] = {false, false};
    if (!receiving.empty()) {
      int from = ranks_[(me_ - distance + n) % n];
      verify(mpi_->irecv(receiving.data, receiving.count, receiving.type, from, tag, mpi_->communicator, &requests[0]));
      open[0] = true;
    }
    if (!sending.empty()) {
      int to = ranks_[(me_ + distance) % n];
      verify(mpi_->isend(sending.data, sending.count, sending.type, to, tag, mpi_->communicator, &requests[1]));
      open[1] = true;
    }
    finish(requests, open, &turn);
  }

 private:
  std::unique_lock<std::mutex> take_turn() {
    std::unique_lock<std::mutex> turn(mpi_->one_at_a_time, std::defer_lock);
    if (!mpi_->multiple) turn.lock();
    return turn;
  }

  // MPI makes progress only inside its calls, so this asks again and again: eagerly at first, since a step
  // usually takes microseconds, then more and more politely.
  void finish(Handle* requests, bool* open, std::unique_lock<std::mutex>* turn) {
    Clock::time_point start = Clock::now();
    Clock::time_point next_check = start + std::chrono::milliseconds(50);
    while (true) {
      for (int i = 0; i < 2; ++i) {
        if (!open[i]) continue;
        int done = 0;
        verify(mpi_->test(&requests[i], &done, mpi_->status_ignore));
        if (done) open[i] = false;
      }
      if (!open[0] && !open[1]) return;
      Clock::time_point now = Clock::now();
      bool locked = turn->owns_lock();
      if (locked) turn->unlock();
      if (now > next_check) {
        next_check = now + std::chrono::milliseconds(50);
        abandon_if_over(requests, open);
      }
      if (now > start + std::chrono::milliseconds(2)) {
        usleep(50);
      } else {
        sched_yield();
      }
      if (locked) turn->lock();
    }
  }

  void abandon_if_over(Handle* requests, const bool* open) {
    try {
      check_();
    } catch (...) {
      for (int i = 0; i < 2; ++i) {
        if (!open[i]) continue;
        mpi_->cancel(&requests[i]);
        mpi_->request_free(&requests[i]);
      }
      throw;
    }
  }

  void verify(int code) {
    if (code == 0) return;
    check_();  // the abort that caused it has the better text
    throw JobAborted("MPI failed with code " + std::to_string(code) + " while moving data between hosts");
  }

  MpiLibrary* mpi_;
  int process_set_;
  std::vector<int> ranks_;
  int me_;
  std::function<void()> check_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(int process_set, std::vector<int> column_ranks, int me,
                                              std::function<void()> check) {
  MpiLibrary* mpi = mpi_library();
  if (!mpi) {
    throw Refused(HVD_INVALID,
                  "HOROVOD_CPU_OPERATIONS=mpi needs a job started by mpirun or horovodrun --mpi; start it so, or "
                  "leave the variable unset to use sockets");
  }
  return std::make_unique<MpiTransport>(mpi, process_set, std::move(column_ranks), me, std::move(check));
}

}  // namespace hvd
