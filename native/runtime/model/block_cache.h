// Blocks that may sleep: their bytes lie elsewhere, and come back when a context needs them. These are the full blocks
// of tables that only the host reads (StateSlice::may_sleep): what an external memory has archived.
//
//   filling ──full──▶ awake ──sleep──▶ asleep ──lent──▶ wanted ──wake──▶ awake
//                                        ▲                 │
//                                        └──────refuse─────┘ its ticket opens with an error
//
// Here is only the mechanism. The owner of the process's memory (src/state/block-cache.ts) learns from news which
// blocks there are, which were used and which are wanted; it decides which of them sleep, keeps their bytes and brings
// them back. Without such an owner no block ever sleeps.
//
// An engine has one cache, which stays when the engine loads its model again after the loss of its device.
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
#include "runtime/model/ticket.h"

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
  void note_full();

 private:
  friend class BlockCache;
  friend class Loan;
  const std::shared_ptr<BlockCache> cache_;
  const size_t size_;
  std::shared_ptr<std::byte[]> bytes_;  // null: asleep
  bool full_ = false;
  size_t lent_ = 0;                 // loans that have the block
  std::shared_ptr<Ticket> ticket_;  // of a block that is wanted: opens when it is awake, or refused
};

class BlockCache {
 public:
  // Numbers of blocks, in order.
  struct News {
    std::vector<uint64_t> full;    // awake blocks that may sleep from now on
    std::vector<uint64_t> used;    // awake ones whose last loan ended
    std::vector<uint64_t> wanted;  // asleep, and somebody waits
    std::vector<uint64_t> gone;    // no context has them any more
    bool empty() const { return full.empty() && used.empty() && wanted.empty() && gone.empty(); }
  };
  // Calls `tell` once, when there is news or at once where there is some, from any thread, under the mutex of the
  // cache; with no news where another listener takes its place. Null: the owner goes. Then nothing is noted, and who
  // waits for a block, or comes to want one that sleeps, is told that it cannot be had.
  void listen(std::function<void(News)> tell);

  // By number, for the owner of the memory. Whether it sleeps now; false too where there is no such block.
  bool sleep(uint64_t number);
  // Bytes for a block that sleeps. Of a block that does not, or that is gone, nothing happens. False: another length.
  bool wake(uint64_t number, std::span<const std::byte> bytes);
  // The same, for a block whose owner is not who brings it: it is news.
  bool place(SleepyBytes& block, std::span<const std::byte> bytes);
  // Who waits for the block is told why it cannot be had. Who wants it later has it wanted again.
  void refuse(uint64_t number, Error error);
  // The bytes of a full block that is awake; none: it is not.
  std::optional<std::vector<std::byte>> copy(uint64_t number);

 private:
  friend class SleepyBytes;
  friend class Loan;
  SleepyBytes* find(uint64_t number);
  void open_ticket(SleepyBytes& block, std::optional<Error> error = std::nullopt);
  void note(std::vector<uint64_t> News::* kind, uint64_t number);

  std::mutex mutex_;
  std::map<uint64_t, SleepyBytes*> blocks_;
  bool has_owner_ = false;
  std::function<void(News)> tell_;
  News news_;
};

// Blocks of one cache that somebody is about to read: those that sleep are wanted, and all of them stay awake, or do
// once they come, as long as the loan lasts.
class Loan {
 public:
  using Blocks = std::vector<std::shared_ptr<SleepyBytes>>;
  Loan() = default;
  explicit Loan(Blocks blocks);
  Loan(Loan&& other) noexcept : blocks_(std::exchange(other.blocks_, {})) {}
  Loan& operator=(Loan&& other) noexcept {
    std::swap(blocks_, other.blocks_);
    return *this;
  }
  ~Loan();

  const Blocks& blocks() const { return blocks_; }
  // The tickets of those that sleep; one that was refused is wanted again. None: all are awake.
  std::vector<std::shared_ptr<Ticket>> missing();

 private:
  Blocks blocks_;
};

}  // namespace continuo
