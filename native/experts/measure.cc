#include "experts/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "experts/buffers.h"
#include "experts/reader.h"
#include "experts/store.h"

namespace continuo::experts {

namespace {

// Any order that jumps: a linear congruence (Knuth, MMIX).
struct Order {
  uint64_t state = 1;
  size_t below(size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state >> 33) % n);
  }
};

}  // namespace

Result<ReadRate> measure_reads(const std::string& path, size_t reads, size_t depth, bool one, Backend backend) {
  ReadRate out;
#ifdef O_DIRECT
  File direct(path, O_RDONLY | O_DIRECT);
#else
  File direct(path, O_RDONLY);
#endif
  File plain(path, O_RDONLY);
  if (!plain) return Error{Code::unavailable, text(path, " could not be opened: ", std::strerror(plain.why()), ".")};
  out.direct = static_cast<bool>(direct);
  const int fd = direct ? direct.fd() : plain.fd();
  auto index = read_index(plain.fd(), path);
  if (!index) return index.error();
  auto disk = open_disk(backend, depth);
  if (!disk) return disk.error();
  const size_t record = index->record_bytes(), pieces = (record + piece_bytes - 1) / piece_bytes;
  // As the cache has them: in large pages.
  Buffers memory(depth * piece_bytes, depth * piece_bytes, nullptr);
  std::byte* const buffers = memory.get(depth * piece_bytes);
  if (!buffers) return Error{Code::unavailable, "There is no memory to read into."};
  std::vector<uint64_t> free;
  for (size_t i = 0; i < depth; ++i) free.push_back(i);
  std::vector<PieceEnd> ended;
  Order order;
  uint64_t at = 0;
  size_t next = 0, running = 0;
  const auto began = std::chrono::steady_clock::now();
  while (next < reads * pieces || running > 0) {
    for (; next < reads * pieces && !free.empty(); ++next, ++running) {
      if (one && next % pieces == 0 && running > 0) break;
      if (next % pieces == 0) at = index->records[order.below(index->records.size())].offset;
      const size_t from = next % pieces * piece_bytes, bytes = std::min(piece_bytes, record - from);
      (*disk)->start(free.back(), {fd, at + from, {buffers + free.back() * piece_bytes, bytes}});
      free.pop_back();
    }
    ended.clear();
    (*disk)->wait(std::nullopt, ended);
    for (const auto& end : ended) {
      if (end.result < 0)
        return Error{Code::unavailable,
                     text(path, " could not be read: ", std::strerror(static_cast<int>(-end.result)), ".")};
      out.bytes += static_cast<uint64_t>(end.result);
      free.push_back(end.token);
      --running;
    }
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return out;
}

void drop_pages(const std::string& path) {
  const File file(path, O_RDONLY);
#ifdef POSIX_FADV_DONTNEED
  // Pages that are not on disk yet would stay.
  if (file) (void)::fdatasync(file.fd());
  if (file) (void)::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
#endif
}

}  // namespace continuo::experts
