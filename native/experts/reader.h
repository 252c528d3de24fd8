// Reads of whole ranges of files, of several at the same time. A range is cut in pieces of at most 1 MiB, of which at
// most `depth` are on their way (disk.h). A demand overtakes look-ahead, and that warm-up, among the pieces that were
// not begun yet.
//
// A piece that is short is continued. One that fails, or ends early, is read again after 10 and after 100 ms; then its
// range has failed. Where the file system turns out to refuse O_DIRECT (EINVAL), the file is read through the page
// cache from then on.
//
// How many ranges wait is bounded by who asks: each has a buffer of the cache.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/file.h"
#include "experts/disk.h"

namespace continuo::experts {

constexpr size_t piece_bytes = size_t{1} << 17;

// A file that is read past the page cache where its file system allows it.
class DirectFile {
 public:
  // Past the page cache only if `direct`.
  DirectFile(const std::string& path, bool direct);

  const std::string path;
  const File file;
  bool direct() const { return direct_; }
  // From now on past the page cache, where the file system allows it.
  void go_direct();
  // From now on through the page cache.
  void give_up_direct();

 private:
  std::atomic<bool> direct_{false};
};

enum class Priority : uint8_t { demand, ahead, warm };

struct ReadEnd {
  int why = 0;          // 0: all was read. Else errno, or file_ended
  uint64_t offset = 0;  // of the piece that failed, in the file
};

struct Range {
  std::shared_ptr<DirectFile> file;
  uint64_t offset = 0;      // a multiple of 4096
  std::span<std::byte> to;  // its address and size are, too
  Priority priority = Priority::demand;
  std::function<void(ReadEnd)> done;  // called by the reader's thread, without a lock; not at all after ~Reader
};

struct ReaderCounts {
  uint64_t ranges = 0, retries = 0;
  double busy_seconds = 0;  // with at least one piece on its way
};

class Reader {
 public:
  // `refused`: called once, with the path of the first file that turns out not to be read past the page cache; by the
  // reader's thread, without a lock.
  Reader(std::unique_ptr<Disk> disk, size_t depth, std::function<void(const std::string&)> refused);
  // Ranges that were not begun are forgotten; pieces on their way are waited for.
  ~Reader();

  // The number of the range.
  uint64_t read(Range range);
  // Makes a demand of a range; nothing happens to one that has ended.
  void raise(uint64_t number);
  ReaderCounts counts() const;

 private:
  using Time = Disk::Time;
  struct Work {
    Range range;
    size_t cut = 0;     // bytes that were made pieces
    size_t pieces = 0;  // that have not ended
    ReadEnd end;
  };
  // A piece on its way, or to be read again.
  struct Part {
    uint64_t number = 0;
    uint64_t offset = 0;
    std::span<std::byte> to;
    size_t failures = 0;
    bool direct = false;
  };
  struct Later {
    Time when;
    Part part;
  };

  void run();
  bool next(Part& part, Time now);
  void start_all(Time now);
  void end_piece(const PieceEnd& end, Time now);
  void again(const Part& part, Time when);
  void piece_over(uint64_t number);

  const std::unique_ptr<Disk> disk_;
  const std::function<void(const std::string&)> refused_;

  mutable std::mutex mutex_;
  std::map<uint64_t, Work> works_;
  std::array<std::deque<uint64_t>, 3> waiting_;  // by priority, those that have more to cut
  std::vector<Later> later_;                     // at most as many as pieces were begun
  std::vector<Part> parts_;                      // by token
  std::vector<uint64_t> free_;                   // tokens
  std::vector<std::pair<std::function<void(ReadEnd)>, ReadEnd>> over_;
  std::optional<std::string> refused_path_;
  bool told_refused_ = false;
  uint64_t last_ = 0;
  bool stopping_ = false;
  ReaderCounts counts_;
  Time busy_since_;
  std::thread thread_;
};

}  // namespace continuo::experts
