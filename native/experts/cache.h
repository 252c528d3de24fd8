// The experts of a store in memory: a part of them, bounded in bytes, read from disk when they are asked for.
//
//            want                 room                    read, checked
//   absent ────────▶ queued ──────────────▶ filling ───────────────────▶ resident ◀──take──▶ lent
//     ▲                │ dropped (ahead, warm)  │ failed                    │
//     └────────────────┴────────────────────────┴──────────evicted──────────┘
//
// A caller says which experts rows were routed to (`routed`), asks for them (`want`), and takes them one by one as they
// come (`take`). Look-ahead and warm-up ask in the same way, at a lower priority. An expert in memory has the payload
// of its record, bit for bit, whichever way it came; nothing here can change what is computed, only when.
//
// What was demanded stays until it was taken (or `unwant`): otherwise one demand would evict what another has just
// brought. A caller that holds no loan while it waits in take needs room for one record, and one that holds a loan room
// for one more: two records, the least bound, suffice for one caller that holds one loan at most.
//
// Layers have the numbers of their files, experts those of the index. Numbers that the store does not have are ignored,
// and are an error in take. All members may be called from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "experts/disk.h"
#include "experts/store.h"

namespace continuo::experts {

// What an expert is asked for by: a row that was routed to it, a prediction one or two layers before, or the warm-up.
enum class Reason : uint8_t { demand, ahead1, ahead2, warm };

// direct: past the page cache, where the file system allows it.
enum class Io : uint8_t { direct, buffered };

// What is evicted first: the lowest score of docs/experts.md; the fewest uses; the longest without use. Of equal ones
// the lower layer, then the lower expert.
enum class Policy : uint8_t { score, lfu, lru };

struct CacheOptions {
  uint64_t bytes = 0;  // bound of the records in memory, with their padding; at least 2 of the largest layer
  std::string digest;  // of the store, 64 hex digits; empty: any
  Io io = Io::direct;
  Backend backend = Backend::automatic;
  size_t depth = 16;  // pieces of at most 1 MiB that are read at once: 8 … 32
  Policy policy = Policy::score;
  bool deltas = true;       // read a delta where a neighbour is resident and the delta is smaller
  bool frequencies = true;  // read and write frequencies.bin
  // Bound of the experts that a device with memory of its own keeps there; none: as the device chooses.
  std::optional<uint64_t> device_bytes;

  // For tests alone: another disk, and memory that cannot be had (false: none of so many bytes).
  std::function<std::unique_ptr<Disk>(size_t depth)> disk;
  std::function<bool(size_t bytes)> memory;
};

// Statistics of the predictions that were made a given number of layers ahead. A prediction is judged when the layer
// that it was made for is routed next.
struct LookAhead {
  uint64_t predictions = 0, right = 0;
  uint64_t already_resident = 0;  // when they were made
  uint64_t in_time = 0;           // right, absent when they were made, and resident when the layer was routed
  uint64_t useless = 0;           // wrong, and its record was read for it
};

struct CacheStatistics {
  uint64_t uses = 0;                 // experts that routed() named, once for each call
  uint64_t hits = 0;                 // of these, resident by then, or held by a device
  uint64_t prefetched = 0;           // of these hits, those that look-ahead or warm-up brought, at their first use
  std::array<LookAhead, 2> ahead{};  // k = 1, 2
  uint64_t demand_bytes = 0, ahead_bytes = 0, warm_bytes = 0;  // records read, by what they were asked for first
  uint64_t delta_bytes = 0;                                    // deltas read, whatever for
  uint64_t reads = 0;                                          // of records and deltas, again and again included
  double wait_seconds = 0;                                     // in take(), all callers together
  double read_seconds = 0;                                     // with at least one read on its way
  uint64_t retries = 0;                                        // pieces read again after an error or an early end
  uint64_t failed_checks = 0;                                  // records with a wrong checksum after a read
  uint64_t failed_reads = 0;                                   // requests that ended with an error
  uint64_t deltas_used = 0, deltas_refused = 0;                // refused: did not give the expert that they should
  uint64_t evictions = 0;
  uint64_t dropped = 0;  // requests of look-ahead and warm-up
  uint64_t resident_bytes = 0, resident = 0;
  uint64_t bound = 0;  // bytes; lower than asked for where memory could not be had
};

class ExpertCache;

// An expert in memory, which is not evicted as long as the loan lasts. It keeps the cache alive.
class Loan {
 public:
  Loan() = default;
  Loan(Loan&& other) noexcept;
  Loan& operator=(Loan&& other) noexcept;
  ~Loan();

  size_t index = 0;  // in what take was given
  bool empty() const { return !cache_; }
  // form_bytes of the layer's shape (form.h); aligned to 4096.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  friend class ExpertCache;
  std::shared_ptr<ExpertCache> cache_;
  size_t entry_ = 0;
  std::span<const std::byte> bytes_;
};

// Somebody waits for experts without a call of take, as long as this lives: as those of a call of take, their reads go
// on even at the cost of what others have demanded and not come for.
class Await {
 public:
  Await(Await&& other) noexcept = default;
  Await& operator=(Await&&) = delete;
  ~Await();
  // Nobody waits for this one any more.
  void taken(uint32_t expert);
  // Adds time to CacheStatistics::wait_seconds.
  void count(std::chrono::duration<double> time);

 private:
  friend class ExpertCache;
  Await() = default;
  std::shared_ptr<ExpertCache> cache_;
  std::vector<std::pair<uint32_t, size_t>> entries_;  // expert and entry
};

class ExpertCache : public std::enable_shared_from_this<ExpertCache> {
 public:
  // Opens the files layer-LLL.experts of `layers`, ascending. REFUSED, with file and numbers: a file that is missing or
  // damaged, another digest, a bound that is too small.
  static Result<std::shared_ptr<ExpertCache>> open(const std::string& folder, std::span<const uint32_t> layers,
                                                   const CacheOptions& options);
  // Waits for reads that are on their way. Nobody may be in a call.
  ~ExpertCache();

  // Null: no such layer.
  const StoreIndex* index(uint32_t layer) const;
  Backend backend() const;
  const std::string& digest() const;  // of the store
  // Experts of this layer that the bound has room for.
  size_t fits(uint32_t layer) const;
  std::vector<uint32_t> layers() const;
  std::optional<uint64_t> device_bytes() const;

  // A layer routed the rows of a step: row rows[i] (from 0) chose expert experts[i], so both have an element for each
  // row and rank, in any order but the rows of one expert ascending. Counts uses, judges predictions for this layer,
  // and takes back what was asked ahead for it, was wrong and is not being read yet. `held`: those of them, ascending,
  // that a device has in memory of its own.
  void routed(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> rows,
              std::span<const uint32_t> held = {});
  // Look-ahead of distance k = 1 or 2 expects these experts when `layer` is routed next. Call it before `want`: until
  // then they count, to the policy, as used now.
  void predicted(uint32_t layer, unsigned k, std::span<const uint32_t> experts);
  // Asks for those that are not resident, in this order; never waits for a disk. A demand overtakes what was asked
  // ahead and is not being read yet. Requests without room wait. Those of look-ahead and warm-up are dropped where too
  // many wait, or where room would cost an expert whose score is not lower.
  void want(uint32_t layer, std::span<const uint32_t> experts, Reason reason);
  // These demands will not be taken: the step failed.
  void unwant(uint32_t layer, std::span<const uint32_t> experts);

  bool ready(uint32_t layer, uint32_t expert) const;
  // Calls `wake` once: when the expert is resident, or its request failed or was dropped; at once where it is resident,
  // or not asked for. From any thread, without a lock; `wake` must not own the cache.
  void on_arrival(uint32_t layer, uint32_t expert, std::function<void()> wake);
  // Waits until one of `pending` is resident, and lends it; of several the one that came first. Those that nobody asked
  // for are demanded now. An error is that of one of them which could not be read; asked for again, it is read anew.
  Result<Loan> take(uint32_t layer, std::span<const uint32_t> pending);
  // The same without waiting: where none of them is resident the loan is empty.
  Result<Loan> take_ready(uint32_t layer, std::span<const uint32_t> pending);

  // `wake` is called, from any thread and without a lock, at each arrival of one of `pending`, and where its request
  // failed or was dropped; it must not own the cache. What is resident then is had by take_ready.
  Await await(uint32_t layer, std::span<const uint32_t> pending, const std::function<void()>& wake);
  // No demand that is not waited for in take or by an Await will be taken.
  void unwant_all();

  // Asks for the most frequent experts, best first, as long as there is room without evicting any. Returns at once.
  void warm();
  // Gives up every record that nobody has or waits for: what is taken next comes from the disk.
  void forget();
  // How often that was called: what a device has of the experts is to be given up too.
  uint64_t forgotten() const;
  // Writes frequencies.bin beside the layers, durably.
  Status save_frequencies();

  CacheStatistics statistics() const;
  // Sentences for the log since the last call, the last 64 at most.
  std::vector<std::string> take_notes();

 private:
  friend class Loan;
  friend class Await;
  struct State;
  Result<Loan> take(uint32_t layer, std::span<const uint32_t> pending, bool wait);
  explicit ExpertCache(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace continuo::experts
