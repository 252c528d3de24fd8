#include "base/file.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace continuo {

File::File(const std::string& path, int flags)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)), why_(fd_ < 0 ? errno : 0) {}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), why_(other.why_) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

int read_at(int fd, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? file_ended : errno;
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return 0;
}

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? ENOSPC : errno;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace continuo
