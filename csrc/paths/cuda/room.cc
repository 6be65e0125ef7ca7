// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/room.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace hvd::cuda {
namespace {

constexpr off_t kGate = 0;  // locked by who claims or clears up; the places follow

// Locks and unlocks bytes for this open file, whichever thread or process of it asks.
bool lock(int fd, int command, short type, off_t at, off_t bytes) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = at;
  range.l_len = bytes;
  return fcntl(fd, command, &range) == 0;
}

// Whether somebody else has a place.
bool others(int fd) {
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = kGate + 1;
  return fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

std::string path_of(const Uuid& gpu, const std::string& folder) {
  const char* digits = "0123456789abcdef";
  std::string path = folder + "/horovod-" + std::to_string(getuid()) + "-";
  for (char byte : gpu.bytes) {
    path += digits[(byte >> 4) & 15];
    path += digits[byte & 15];
  }
  return path;
}

}  // namespace

std::string Room::shared_folder() {
  const char* given = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = given && *given ? given : "/tmp/nvidia-mps";
  return access(folder.c_str(), W_OK) == 0 ? folder : "/tmp";
}

Room::Room(const Uuid& gpu, const std::string& folder) : path_(path_of(gpu, folder)) {}

// A file that nobody needs goes.
Room::~Room() {
  if (!file_ || !lock(file_.get(), F_OFD_SETLKW, F_WRLCK, kGate, 1)) return;
  struct stat now{};
  if (fstat(file_.get(), &now) == 0 && now.st_nlink > 0 && !others(file_.get())) unlink(path_.c_str());
}

bool Room::enter() {
  for (int turn = 0; turn < 100; ++turn) {
    if (!file_) file_ = UniqueFd(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file_ || !lock(file_.get(), F_OFD_SETLKW, F_WRLCK, kGate, 1)) break;
    struct stat now{};
    if (fstat(file_.get(), &now) == 0 && now.st_nlink > 0) return true;
    file_.reset();  // it was cleared up before we had its gate
    held_.clear();
  }
  file_.reset();
  held_.clear();
  return false;
}

int Room::claim(int wanted, int all) {
  auto held = [&] { return static_cast<int>(held_.size()); };
  if (held() >= wanted) return held();
  if (!enter()) return wanted;
  for (int place = 1; place <= all && held() < wanted; ++place)
    if (lock(file_.get(), F_OFD_SETLK, F_WRLCK, kGate + place, 1)) held_.insert(place);
  lock(file_.get(), F_OFD_SETLK, F_UNLCK, kGate, 1);
  return held();
}

}  // namespace hvd::cuda
