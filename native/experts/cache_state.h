// What an ExpertCache is made of. Its functions stand in four files: cache.cc what callers call, cache_uses.cc what it
// learns from routes, cache_room.cc who gets memory and who loses it, cache_fill.cc how a record comes in.
//
// Two threads belong to it. The reader's hands ended reads over; the checker's takes them: it compares checksums,
// applies deltas, and has read again what was wrong. So the disk does not wait for checksums, nor they for a caller.
//
// One mutex guards all members, but for the bytes of an entry that is being filled: those belong to the read, then to
// the checker. Locks are taken in one order: the cache's, then the reader's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/memory.h"
#include "experts/buffers.h"
#include "experts/cache.h"
#include "experts/frequencies.h"
#include "experts/layer_file.h"
#include "experts/reader.h"

namespace continuo::experts {

struct ExpertCache::State {
  using Lock = std::unique_lock<std::mutex>;
  using Wakes = std::vector<std::function<void()>>;

  enum class Stage : uint8_t { absent, queued, filling, resident };

  struct FreeAligned {
    void operator()(std::byte* bytes) const { free_aligned(bytes); }
  };

  // A record on its way. Of the checker's thread, once its read has ended.
  struct Fill {
    std::shared_ptr<const LayerFile> layer;
    uint64_t number = 0;         // of the read
    std::optional<size_t> base;  // the entry that a delta is applied to
    size_t delta = 0;            // in the index of `layer`
    // Padded. It lies beside the bound: it is smaller than its record.
    std::unique_ptr<std::byte, FreeAligned> delta_bytes;
    std::shared_ptr<DirectFile> again;  // the file past the page cache: a checksum was wrong once
    bool reopened = false;
  };

  struct Entry {
    uint32_t layer = 0, expert = 0;  // `layer`: its place in layers_
    Stage stage = Stage::absent;
    Reason reason = Reason::demand;  // of the request
    bool due = false;                // demanded, and not taken yet
    bool unused = false;             // brought by look-ahead or warm-up, and not used since
    uint8_t expected = 0;            // bit k − 1: predicted with distance k, and not judged yet
    uint8_t was_resident = 0;        // the same bits: resident when it was predicted
    uint32_t loans = 0;
    uint32_t bases = 0;    // deltas that are to be applied to it
    uint32_t awaited = 0;  // callers that wait for it in take
    uint64_t uses = 0, touched = 0, arrival = 0, round = 0;
    size_t place = 0;  // in residents_
    std::byte* bytes = nullptr;
    std::unique_ptr<Fill> fill;
  };

  // The delta of an expert with a neighbour.
  struct Link {
    uint32_t neighbour;
    uint32_t delta;
    uint64_t bytes;  // padded
  };

  struct Layer {
    uint32_t number = 0;
    size_t first = 0, count = 0;  // in entries_
    size_t record = 0, payload = 0;
    size_t form = 0, memory = 0;                    // of an expert in memory, without and with padding
    std::shared_ptr<const LayerFile> opened, file;  // `opened`: at first; index() shows it. `file`: what is read now
    std::vector<std::vector<Link>> links;           // of each expert, by bytes, then neighbour
    std::vector<uint8_t> faults;                    // of each delta
    std::array<std::vector<uint32_t>, 2> predicted;
  };

  // A caller that waits in take.
  struct Taker {
    std::span<const size_t> entries;
    std::optional<Error> error;
  };

  State(std::string folder, CacheOptions options, std::vector<std::shared_ptr<const LayerFile>> files, Backend backend,
        std::unique_ptr<Disk> disk);
  ~State();

  // cache.cc
  Layer* layer_of(uint32_t number);
  Entry* entry_of(uint32_t layer, uint32_t expert);
  size_t number_of(const Entry& entry) const { return layers_[entry.layer].first + entry.expert; }
  void note(std::string sentence);
  void ask(Entry& entry, Reason reason);
  void withdraw(Entry& entry, Wakes& wakes);

  // cache_uses.cc
  void judge(Layer& layer, size_t k);
  void load_frequencies();

  // cache_room.cc
  enum class Room : uint8_t { made, none_now, costs_better };
  // What an entry that may be evicted for another is: any; one whose score is lower; also one that is due.
  enum class Price : uint8_t { any, lower, also_due };
  double delta_cost(const Entry& entry) const;
  double score(const Entry& entry) const;
  const Link* nearest(const Entry& entry) const;
  // Nobody uses its bytes. What is due may still be kept.
  static bool may_go(const Entry& entry) { return entry.loans == 0 && entry.bases == 0 && entry.awaited == 0; }
  Entry* victim(Price price) const;
  void evict(Entry& entry);
  Room make_room(const Entry& entry, Price price);
  std::byte* memory_for(const Entry& entry, Price price);
  Room admit(Entry& entry, Price price);
  void pump(Wakes& wakes);
  void pump_ahead(Wakes& wakes);
  void drop(Entry& entry, Wakes& wakes);
  static Priority priority_of(Reason reason);
  std::deque<size_t>& queue_of(const Entry& entry);
  void leave_queue(Entry& entry);

  // cache_fill.cc
  void link(Layer& layer);
  bool start_delta(Entry& entry, const Link& link);
  void start_record(Entry& entry);
  void read(Entry& entry, std::shared_ptr<DirectFile> file, uint64_t offset, std::span<std::byte> to);
  void check_loop();
  void check(size_t number, ReadEnd end);
  void check_delta(Entry& entry, ReadEnd end);
  std::optional<Error> reopen(Entry& entry);
  void arrive(Entry& entry, Lock& lock);
  void fail(Entry& entry, Error error, Lock& lock);
  void tell_failure(Entry& entry, const Error& error);
  void end_fill(Entry& entry, Wakes& wakes);
  void leave(Lock& lock, const Wakes& wakes);

  const std::string folder_;
  const CacheOptions options_;
  const Backend backend_;
  std::string digest_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;  // for callers in take: an entry is resident, or cannot be had
  std::vector<Layer> layers_;        // ascending
  std::vector<Entry> entries_;       // by layer, then expert
  std::vector<size_t> residents_;
  std::array<std::deque<size_t>, 3> queues_;  // by Priority; look-ahead and warm-up: at most most_waiting
  std::vector<size_t> warm_;                  // what the warm-up has yet to ask for, best last
  std::map<size_t, Error> failed_;            // demands that failed before anybody took them
  std::multimap<size_t, std::function<void()>> wakes_;
  std::vector<Taker*> takers_;
  Frequencies frequencies_;
  Buffers buffers_;
  uint64_t bound_ = 0, largest_ = 0;
  uint64_t used_ = 0;         // bytes of entries that are resident or filling
  uint64_t ahead_bytes_ = 0;  // of those filling, what look-ahead and warm-up asked for
  size_t fills_ = 0, ahead_fills_ = 0;
  uint64_t clock_ = 0;  // orders uses and arrivals
  uint64_t round_ = 0;  // calls of routed
  uint64_t forgotten_ = 0;
  CacheStatistics statistics_;
  // Of look-ahead by 1 and 2: the share of right ones among the last predictions of experts that were absent.
  std::array<double, 2> trust_{0.6, 0.6};
  std::deque<std::string> notes_;

  std::condition_variable work_;    // for the checker
  std::vector<std::byte> payload_;  // the checker's
  std::deque<std::pair<size_t, ReadEnd>> ended_;
  bool stopping_ = false;
  std::unique_ptr<Reader> reader_;
  std::thread checker_;
};

}  // namespace continuo::experts
