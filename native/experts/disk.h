// Reads of pieces of files that are on their way at the same time: what a Reader (reader.h) gives its work to. A
// virtual class, because there are two of them, and because the tests read from one that loses, delays and damages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"

namespace continuo::experts {

struct Piece {
  int fd;
  uint64_t offset;
  std::span<std::byte> to;
};

struct PieceEnd {
  uint64_t token;
  int64_t result;  // bytes that were read, fewer than asked for perhaps; or -errno
};

// Every member but wake is called by one thread.
class Disk {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The owner has waited for the end of every piece.
  virtual ~Disk() = default;
  // Begins to read, and does not wait for it. The owner keeps at most as many pieces on their way as it said.
  virtual void start(uint64_t token, const Piece& piece) = 0;
  // Waits until a piece has ended, somebody calls wake, or it is `until`; then adds all that have ended, perhaps none.
  virtual void wait(std::optional<Time> until, std::vector<PieceEnd>& ended) = 0;
  // Ends the present wait, or the next one. From any thread.
  virtual void wake() = 0;
};

// mapped: by page faults of a mapping, one piece after the other; for comparison.
enum class Backend { automatic, io_uring, threads, mapped };

// A disk for `depth` pieces at once. automatic: io_uring where the kernel allows it, else threads. Asked for io_uring
// by name, a kernel that refuses it is UNAVAILABLE. `backend` says in the end which of the two it is.
Result<std::unique_ptr<Disk>> open_disk(Backend& backend, size_t depth);

// The two of them. Null: the kernel refuses io_uring, and `why` is its errno.
std::unique_ptr<Disk> ring_disk(size_t depth, int& why);
std::unique_ptr<Disk> thread_disk(size_t depth);
std::unique_ptr<Disk> mapped_disk();

}  // namespace continuo::experts
