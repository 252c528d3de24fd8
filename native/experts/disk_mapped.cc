// Pieces copied out of a mapping of their file, one after the other: what an engine has that leaves reading to page
// faults. The pages are given up at once, as they are where memory is short of them; otherwise a small file would be in
// memory after a while, whatever bound the engine was given. For comparison only.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>

#include "experts/disk.h"

namespace continuo::experts {

namespace {

class MappedDisk : public Disk {
 public:
  ~MappedDisk() override {
    for (const auto& [fd, bytes] : mapped_) ::munmap(bytes.data(), bytes.size());
  }

  void start(uint64_t token, const Piece& piece) override {
    const auto bytes = mapping(piece.fd);
    int64_t result = -EIO;
    if (piece.offset < bytes.size()) {
      const size_t n = std::min<size_t>(piece.to.size(), bytes.size() - piece.offset);
      std::memcpy(piece.to.data(), bytes.data() + piece.offset, n);
      // Pieces begin at a page.
      (void)::madvise(bytes.data() + piece.offset, n, MADV_DONTNEED);
#ifdef POSIX_FADV_DONTNEED
      (void)::posix_fadvise(piece.fd, static_cast<off_t>(piece.offset), static_cast<off_t>(n), POSIX_FADV_DONTNEED);
#endif
      result = static_cast<int64_t>(n);
    }
    ended_.push_back({token, result});
  }

  void wait(std::optional<Time> until, std::vector<PieceEnd>& ended) override {
    if (ended_.empty()) {
      std::unique_lock lock(mutex_);
      if (until)
        news_.wait_until(lock, *until, [&] { return woken_; });
      else
        news_.wait(lock, [&] { return woken_; });
      woken_ = false;
    }
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    news_.notify_one();
  }

 private:
  std::span<std::byte> mapping(int fd) {
    if (const auto found = mapped_.find(fd); found != mapped_.end()) return found->second;
    struct stat status{};
    if (::fstat(fd, &status) != 0 || status.st_size <= 0) return {};
    const auto size = static_cast<size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return {};
    return mapped_[fd] = {static_cast<std::byte*>(data), size};
  }

  std::map<int, std::span<std::byte>> mapped_;
  std::vector<PieceEnd> ended_;  // of the caller's thread
  std::mutex mutex_;
  std::condition_variable news_;
  bool woken_ = false;
};

}  // namespace

std::unique_ptr<Disk> mapped_disk() { return std::make_unique<MappedDisk>(); }

}  // namespace continuo::experts
