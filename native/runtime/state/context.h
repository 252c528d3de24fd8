// Context: one mutable timeline: its persistent memory, its clock and its chain.
//
// Tables lie in the memory of the model's device: in blocks (blocks.h), or with all others in one span. Those that no
// op touches (StateSlice::on_host) lie in the host's memory, in the same ways. Counters lie in the host's memory,
// because the host computes from them which positions a step reads and writes. Between calls the device may page a
// context out, so code that touches its tables pins it first.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/state/blocks.h"
#include "runtime/state/chain.h"
#include "runtime/state/grown_table.h"
#include "runtime/state/habit.h"

namespace continuo {

// Sums of the gates of one level of a matrix memory over tokens and heads, since the context was made in this process.
// They are statistics for people and no part of the state.
struct GateSums {
  double theta = 0, eta = 0, alpha = 0;
  uint64_t count = 0;  // tokens × heads
};

struct Head {
  uint64_t pulse = 0;   // tokens fed since the session began
  uint64_t origin = 0;  // pulse at which the current state began (the last reset)
  Chain chain;
};

// Positions from … to − 1 of a table that grows, or places of a ring.
struct Positions {
  size_t from = 0, to = 0;
};

// Leading positions of growing tables that come as blocks, not with the bytes of a state. Multiples of 256.
struct Behind {
  std::span<const size_t> positions = {};  // [slices]
  std::span<const size_t> kept = {};       // [slices]: the first of them, which the context that is restored has itself
};

class Context final : public Pageable {
 public:
  // Throws DeviceError or std::bad_alloc where the device or the host has no memory for it.
  explicit Context(std::shared_ptr<const Model> model);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Model& model() const { return *model_; }
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  Head head;

  // Sets every persistent to its first value. The clock is not set back.
  void reset();
  // Copies the state out and in: every persistent in order of declaration, dense, little-endian; of a growing table as
  // many positions as its counter says. `restore` refuses a wrong length, counters out of bounds, bools that are
  // neither 0 nor 1, numbers that are not finite, and a head whose origin or pulse is impossible. A refusal changes
  // nothing.
  size_t serialized_bytes() const;  // bytes that `serialize` writes
  // INTERNAL where a block sleeps that would have to be copied: see want().
  Status serialize(std::span<std::byte> out);
  // A part of the same copy: of each growing table the positions `rows`[slice], of which none lies beyond its counter,
  // of each ring these places; everything else with `rest` only.
  size_t part_bytes(std::span<const Positions> rows, bool rest) const;
  Status serialize_part(std::span<const Positions> rows, bool rest, std::span<std::byte> out);
  // Has the blocks of these positions brought that sleep; all stay awake until the next copy of a part was made. The
  // tickets of those that sleep.
  std::vector<std::shared_ptr<Ticket>> want(std::span<const Positions> rows);
  Status restore(std::span<const std::byte> state, const Head& to) { return restore(state, to, Behind{}); }
  // The same of a state without the positions in `behind`: but for those that are kept, they come as blocks, which the
  // caller checks and writes (BlockTable::expected) before anything reads the context.
  Status restore(std::span<const std::byte> state, const Head& to, const Behind& behind);

  // The full blocks of tables that may sleep, while the context is elsewhere. [slices]
  using Sleepy = std::vector<std::vector<std::shared_ptr<TableBlock>>>;
  Sleepy sleepy() const;
  // Takes such blocks in place of its own ones, so that a `restore` may keep them.
  void adopt(const Sleepy& blocks);

  // A new context that goes on from here by itself: state, clock and chain are this one's, gates are not. It shares the
  // full blocks of tables that grow along one counter and the blocks of rings, and copies the rest. To be called
  // between two steps, by the call that has claimed this context. Throws as the constructor does.
  std::shared_ptr<Context> fork();

  // Bytes of memory that the tables take now, on the device or, while paged out, on the host. A block that several
  // contexts share is counted by one of them.
  size_t bytes();
  // From here on bytes() of its forks counts the blocks that they share. To be called before the context is freed.
  void discount();
  void page_out() override;
  void page_in() override;
  size_t device_bytes() const override;
  // True if all numbers that were written since the last finite(), reset() or restore() are finite. Of a table that
  // follows a counter, only the positions that a row could write since then are read; with `whole`, all positions. To
  // be called between two steps, by the call that has claimed the context.
  bool finite(bool whole = false);

  // A copy of the tables that lie in one span, as they lie there, and of the counters: see Model::first.
  FirstState image() const;

  // Address of a table where it lies, one span; valid while the context is pinned: [elements], or of a table that grows
  // along several counters [room(name, axis) of each axis].
  std::byte* data(Name name);
  // Positions along an axis of a table that grows along several counters; of another axis its extent.
  size_t room(Name name, size_t axis) const { return several(name).room(axis); }
  // Address of a position of a ring, [inner] of this outer part.
  const std::byte* ring_row(Name ring, size_t outer, size_t position);
  // A table in blocks.
  BlockTable& blocks(Name name) { return block_tables_[model_->slice_of[name]]; }
  // Index of an element by its address, in elements from the beginning of the table: see BlockTable::index_of.
  size_t index_of(Name name, const std::byte* element);

  // A counter's value; of the clock, the pulse.
  int64_t counter(Name name) const;
  // Sets the counter to the larger value `to`. Tables that follow it get room for so many positions. False beyond the
  // counter's bound; then nothing has changed.
  bool raise(Name counter, int64_t to);
  // Sets the counter to the smaller value `to`. Positions from there on return to their first value.
  void lower(Name counter, int64_t to);
  // Makes room for `to` positions in the tables that follow the counter, which stays as it is, and copies blocks that
  // are shared with other contexts and that those positions of a ring take the place of.
  bool reserve(Name counter, int64_t to);
  // No step computes with this context now: blocks that a step had to replace are let go.
  void settle();

  // A context belongs to one call at a time. `claim` fails while another call has claimed it.
  bool claim() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }
  bool busy() const { return busy_.load(std::memory_order_acquire); }

  // Key: the table of memories, and the index of the level's first element in that table.
  std::map<std::pair<Name, size_t>, GateSums> gates;

  // The list of slots that the next token attends to is what the rest of the state says: see MemoryController.
  bool list_laid = false;
  // Archived blocks that the list is about to be laid from, and pending ones that come at the next beat.
  Loan to_lay, to_inject;

  // Of the experts of a store that its rows were routed to: in how many of the last layers, as a share, one was not in
  // memory. It decides who waits for whom, and no bit.
  float misses = 0.5f;
  bool swift() const { return misses < 0.5f; }
  Habit habit;

  // Set when a number stopped being finite, or when memory ran out in the middle of a step. Only reset() and restore()
  // clear it.
  bool broken = false;

 private:
  // A context without its first state, and without blocks.
  struct Unset {};
  Context(std::shared_ptr<const Model> model, Unset);
  Device& device() const { return *model_->device; }
  // The counters of a state, once all of it was checked. [slices]
  Result<std::vector<int64_t>> checked(std::span<const std::byte> state, std::span<const size_t> behind) const;
  // Visits the bytes of a slice that is no counter, dense, part after part: of a growing table positions `from` up to
  // its counter, or `rows` of it; of a ring all places, or `rows` of them.
  void each_piece(size_t slice, const auto& visit, size_t from = 0) const;
  void each_piece(size_t slice, const auto& visit, Positions rows) const;
  // Visits the bytes of a slice that finite() has to read.
  void each_unchecked_piece(size_t slice, const auto& visit) const;
  void mark_checked();
  BlockTable empty_table(size_t slice) const;
  // The span in which a slice lies that has no memory of its own.
  DeviceMemory& span_of(const StateSlice& slice) { return slice.on_host ? host_memory_ : memory_; }
  const DeviceMemory& span_of(const StateSlice& slice) const { return slice.on_host ? host_memory_ : memory_; }
  void clear_ring(size_t slice, size_t first, size_t last);
  void clear_places(size_t slice, Positions places);
  void set_counter(Name name, int64_t to);
  std::vector<Positions> whole() const;  // [slices]: all positions, or places
  // Blocks that may sleep and hold some of these positions.
  Loan::Blocks sleepy_in(std::span<const Positions> rows) const;
  void drop_loans();
  size_t entered(const StateSlice& slice) const { return static_cast<size_t>(counter(slice.counter)); }
  // Of a table that grows along several counters: its extents by the counters' values.
  GrownTable::Extents extents(const StateSlice& slice, std::span<const int64_t> counters) const;
  std::vector<GrownTable> without_room() const;
  const GrownTable& several(Name name) const { return several_[model_->layout[model_->slice_of[name]].several]; }

  std::shared_ptr<const Model> model_;
  // [model.state_bytes], [model.host_bytes]: the slices without memory of their own, at their offsets.
  DeviceMemory memory_, host_memory_;
  std::vector<int64_t> counters_;         // [slices]; 0 where the slice is no counter
  std::vector<BlockTable> block_tables_;  // [slices]; empty where the slice does not lie in blocks
  std::vector<GrownTable> several_;       // [model.several]: tables that grow along several counters
  std::vector<size_t> checked_;    // [slices]: leading positions known to be finite; used where it follows a counter
  Loan to_copy_;                   // see want()
  std::atomic<bool> busy_{false};  // claimed by a call
};

inline void Context::each_piece(size_t i, const auto& visit, size_t from) const {
  const auto& slice = model_->layout[i];
  each_piece(i, visit, slice.grows() ? Positions{from, entered(slice)} : Positions{0, slice.places});
}

inline void Context::each_piece(size_t i, const auto& visit, Positions rows) const {
  const auto& slice = model_->layout[i];
  if (model_->graph.declarations[slice.name].counter) return;
  if (slice.several != no_name) {
    const auto to = extents(slice, counters_);
    return several_[slice.several].each_piece(GrownTable::Extents(to.size(), 0), to, visit);
  }
  if (slice.in_blocks()) return block_tables_[i].each_piece(rows.from, rows.to, visit);
  const std::byte* data = span_of(slice).data() + slice.offset;
  const size_t each = slice.inner * size_of(slice.type), places = rows.to - rows.from;
  if (places == slice.places) return visit(data, slice.elements * size_of(slice.type));
  for (size_t part = 0; part < slice.outer && places > 0; ++part)
    visit(data + (part * slice.places + rows.from) * each, places * each);
}

}  // namespace continuo
