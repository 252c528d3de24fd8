// Pieces read by pread, a thread for each that is on its way.
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "experts/disk.h"

namespace continuo::experts {

namespace {

class ThreadDisk : public Disk {
 public:
  explicit ThreadDisk(size_t depth) {
    try {
      for (size_t i = 0; i < depth; ++i) threads_.emplace_back([this] { read(); });
    } catch (...) {
      // Those that run must be joined before the exception leaves.
      stop();
      throw;
    }
  }
  ~ThreadDisk() override { stop(); }

  void start(uint64_t token, const Piece& piece) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.emplace_back(token, piece);
    }
    work_.notify_one();
  }

  void wait(std::optional<Time> until, std::vector<PieceEnd>& ended) override {
    std::unique_lock lock(mutex_);
    const auto over = [&] { return woken_ || !ended_.empty(); };
    if (until)
      news_.wait_until(lock, *until, over);
    else
      news_.wait(lock, over);
    woken_ = false;
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
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void read() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const auto [token, piece] = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const ssize_t n = ::pread(piece.fd, piece.to.data(), piece.to.size(), static_cast<off_t>(piece.offset));
      const int64_t result = n < 0 ? -int64_t{errno} : int64_t{n};
      lock.lock();
      ended_.push_back({token, result});
      news_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, news_;
  std::deque<std::pair<uint64_t, Piece>> waiting_;
  std::vector<PieceEnd> ended_;
  bool woken_ = false, stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Disk> thread_disk(size_t depth) { return std::make_unique<ThreadDisk>(depth); }

}  // namespace continuo::experts
