#include "base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
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

int replace_file(const std::string& path, std::span<const std::byte> bytes) {
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return errno;
  int why = write_all(fd, bytes);
  if (why == 0 && (::fchmod(fd, 0644) != 0 || ::fsync(fd) != 0)) why = errno;
  if (::close(fd) != 0 && why == 0) why = errno;
  if (why == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) why = errno;
  if (why != 0) {
    ::unlink(temporary.c_str());
    return why;
  }
  const size_t slash = path.rfind('/');
  const File folder(slash == std::string::npos ? "." : path.substr(0, slash + 1), O_RDONLY | O_DIRECTORY);
  if (!folder) return folder.why();
  return ::fsync(folder.fd()) == 0 ? 0 : errno;
}

}  // namespace continuo
