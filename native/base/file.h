// Files by their descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace continuo {

// An open file; it is closed at the end.
class File {
 public:
  // `flags` of open(2). A file that is made can be read by everybody and written by its owner.
  File(const std::string& path, int flags);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // errno of the call that could not open it.
  int why() const { return why_; }

 private:
  int fd_, why_;
};

// A file that ends before the bytes that were asked for.
constexpr int file_ended = -1;

// Reads all of `out` from `offset` on. 0, file_ended, or errno.
int read_at(int fd, std::span<std::byte> out, uint64_t offset);

// Writes all of `bytes` where the file stands. 0, or errno.
int write_all(int fd, std::span<const std::byte> bytes);

// Writes a file whole, or leaves what is at `path` as it is: into a temporary file beside it, which is synced and takes
// its name, and so is the folder. 0, or errno.
int replace_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace continuo
