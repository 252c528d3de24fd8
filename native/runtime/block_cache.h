// Blocks that may sleep: their bytes lie elsewhere, and come back when a context needs them. These are the full blocks
// of tables that only the host reads (StateSlice::may_sleep): what a memory outside has archived.
//
//   filling ──full──▶ awake ──sleep──▶ asleep ──want, borrow──▶ wanted ──wake──▶ awake
//                                        ▲                          │
//                                        └──────────refuse──────────┘ with an error for who borrows next
//
// Here is only the mechanism. The owner of the process's memory (src/state/block-cache.ts) learns from news which
// blocks there are, which were used and which are wanted; it decides which of them sleep, keeps their bytes and brings
// them back. A block that is lent, or that somebody waits for, stays awake. Without such an owner no block ever sleeps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/ticket.h"

namespace continuo {

class BlockCache;

// The bytes of one block. Every member but `cache` and `number` is under the mutex of the cache.
class SleepyBytes {
 public:
  // Zeroes to be written; or, asleep from the beginning, what is to come.
  SleepyBytes(std::shared_ptr<BlockCache> cache, size_t bytes, bool asleep);
  ~SleepyBytes();
  SleepyBytes(const SleepyBytes&) = delete;
  SleepyBytes& operator=(const SleepyBytes&) = delete;

  const uint64_t number;  // in its process
  size_t size() const { return size_; }
  // Null while it sleeps. It stays while the block is filling, or lent.
  std::byte* data() const;
  // Its size before it is full, and 0 afterwards.
  size_t filling_bytes() const;
  // The block is full: nobody writes it any more, and it may sleep. Once is enough.
  void full();

 private:
  friend class BlockCache;
  const std::shared_ptr<BlockCache> cache_;
  const size_t size_;
  std::unique_ptr<std::byte[]> bytes_;  // null: asleep
  bool full_ = false;
  bool awaited_ = false;  // wanted, and not lent since: it must not sleep again before
  size_t lent_ = 0;
  std::shared_ptr<Ticket> ticket_;  // opens when a wanted block is awake, or refused
  std::optional<Error> fault_;      // why it was refused, for who borrows next
};

class BlockCache {
 public:
  // Numbers of blocks, in order.
  struct News {
    std::vector<uint64_t> full;    // awake blocks that may sleep from now on
    std::vector<uint64_t> used;    // lent
    std::vector<uint64_t> wanted;  // asleep, and somebody waits
    std::vector<uint64_t> gone;    // no context has them any more
    bool empty() const { return full.empty() && used.empty() && wanted.empty() && gone.empty(); }
  };
  // Calls `tell` once, when there is news or at once where there is some, from any thread, under the mutex of the
  // cache; with no news where another listener takes its place. Null: nobody listens any more, and nothing is noted.
  void listen(std::function<void(News)> tell);

  // Lends them all until give_back(), or none: then it gives the ticket of one of those that sleep; all of them are
  // wanted. The error of a block that was refused; who asks again has it wanted again.
  Result<std::shared_ptr<Ticket>> borrow(std::span<SleepyBytes* const> blocks);
  void give_back(std::span<SleepyBytes* const> blocks);
  // Those that sleep are wanted. With `keep`, all stay awake until they were lent. The tickets of those that sleep.
  std::vector<std::shared_ptr<Ticket>> want(std::span<SleepyBytes* const> blocks, bool keep);

  // By number, for the owner of the memory. Whether it sleeps now; false too where there is no such block.
  bool sleep(uint64_t number);
  // Bytes for a block that sleeps. Of a block that does not, or that is gone, nothing happens. False: another length.
  bool wake(uint64_t number, std::span<const std::byte> bytes);
  // The same, for a block whose owner is not who brings it: it is news.
  bool place(SleepyBytes& block, std::span<const std::byte> bytes);
  void refuse(uint64_t number, Error error);
  // The bytes of a full block that is awake; none: it is not.
  std::optional<std::vector<std::byte>> copy(uint64_t number);

 private:
  friend class SleepyBytes;
  SleepyBytes* find(uint64_t number);
  std::shared_ptr<Ticket> wanted(SleepyBytes& block);
  void opened(SleepyBytes& block);
  void note(std::vector<uint64_t> News::* kind, uint64_t number);

  std::mutex mutex_;
  std::map<uint64_t, SleepyBytes*> blocks_;
  bool has_owner_ = false;
  std::function<void(News)> tell_;
  News news_;
};

// Blocks that a call reads: they stay awake during its lifetime.
class Loan {
 public:
  Loan(BlockCache& cache, std::vector<SleepyBytes*> blocks) : cache_(cache), blocks_(std::move(blocks)) {}
  ~Loan() {
    if (lent_) cache_.give_back(blocks_);
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  // As BlockCache::borrow. To be called until it gives neither a ticket nor an error.
  Result<std::shared_ptr<Ticket>> take() {
    auto ticket = cache_.borrow(blocks_);
    lent_ = ticket && !*ticket;
    return ticket;
  }

 private:
  BlockCache& cache_;
  const std::vector<SleepyBytes*> blocks_;
  bool lent_ = false;
};

}  // namespace continuo
