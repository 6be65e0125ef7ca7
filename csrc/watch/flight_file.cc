// SPDX-License-Identifier: Apache-2.0
#include "watch/flight_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "util/fd.h"

namespace hvd {
namespace {

// An elastic job that fails again and again does not fill the disk.
constexpr off_t kMaxBytes = 64 << 20;

}  // namespace

bool append_line(const std::string& path, const std::string& line) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return false;
  flock(file.get(), LOCK_EX);  // a line may take several writes; without locks there (NFS) they mix at worst
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return false;
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || info.st_size > kMaxBytes) {
    errno = EPERM;
    return false;
  }
  const std::string whole = line + "\n";
  for (size_t done = 0; done < whole.size();) {
    ssize_t n = write(file.get(), whole.data() + done, whole.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace hvd
