// Context: one mutable timeline. Its persistent memory, its clock, its chain.
//
// Tables lie in the memory of the model's device, counters in the host's: where a step goes is decided there. Between
// calls a context may be paged out; who touches its tables holds it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/chain.h"
#include "runtime/model.h"

namespace continuo {

// What the gates of one level of a matrix memory were, summed over tokens and heads, since the context is in memory.
// For people to look at: no part of the state.
struct GateSums {
  double theta = 0, eta = 0, alpha = 0;
  uint64_t count = 0;
};

struct Head {
  uint64_t pulse = 0;   // tokens fed since the session began
  uint64_t origin = 0;  // the pulse at which the current state began
  Chain chain;
};

class Context final : public Pageable {
 public:
  // Throws DeviceError or std::bad_alloc where there is no memory for it.
  explicit Context(std::shared_ptr<const Model> model);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Model& model() const { return *model_; }
  Head head;

  // Back to the first values; the clock goes on.
  void reset();
  // Copies the state out / in: every persistent in order of declaration, dense, little-endian; a table that grows with
  // as many positions as its counter says. `restore` refuses a wrong length, counters out of bounds, bools that are
  // neither 0 nor 1, numbers that are not finite and a head that cannot be; then nothing has changed.
  size_t serialized_bytes() const;
  void serialize(std::span<std::byte> out);
  Status restore(std::span<const std::byte> state, const Head& head);

  // Memory held now, in bytes, wherever it lies.
  size_t bytes() const;
  void page_out() override;
  void page_in() override;
  size_t device_bytes() const override { return bytes(); }
  // True if all numbers are finite that were written since the last finite(), reset() or restore(). Of a table that
  // follows a counter only the positions that could be written since are read, or all of it where `whole`. The caller
  // has the context, between two steps.
  bool finite(bool whole = false);

  // A copy of what does not grow, as it lies in memory, and of the counters: see Model::first.
  FirstState image() const;

  // A table that does not grow, or one that does, with the positions it has room for: an address of the device's, while
  // it is held.
  std::byte* data(Name name);
  size_t room(Name name) const { return grown_[model_->slice_of[name]].positions; }

  int64_t counter(Name name) const;
  // Enters positions up to `to`; tables that follow make room, doubling. False, changing nothing, beyond the counter's
  // bound.
  bool raise(Name counter, int64_t to);
  // Leaves positions; what stood there returns to its first value.
  void lower(Name counter, int64_t to);
  // Makes room for `to` positions without entering them.
  bool reserve(Name counter, int64_t to);

  // A context belongs to one call at a time. `claim` fails while another call has it.
  bool claim() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }
  bool busy() const { return busy_.load(std::memory_order_acquire); }

  // By the first element of the level in its table of memories.
  std::map<std::pair<Name, size_t>, GateSums> gates;

  // Set when a number stopped being finite, or memory ran out in the middle of a step: nothing but reset and restore
  // helps.
  bool broken = false;

 private:
  struct Grown {
    DeviceMemory memory;
    size_t positions = 0;
  };
  Device& device() const { return *model_->device; }
  // What was entered of a slice that is no counter, in one piece or one for each outer part; of one that grows from
  // position `from` on.
  void each_piece(size_t slice, const auto& visit, size_t from = 0) const;
  // What finite() looks at of a slice.
  void each_unchecked_piece(size_t slice, const auto& visit) const;
  void mark_checked();
  size_t room_for(Name counter, size_t wanted) const;
  void grow(uint32_t slice, size_t positions);
  void clear_ring(const StateSlice& slice, size_t first, size_t last);
  void set_counter(Name name, int64_t to);
  size_t entered(const StateSlice& slice) const { return static_cast<size_t>(counter(slice.counter)); }

  std::shared_ptr<const Model> model_;
  DeviceMemory memory_;
  std::vector<int64_t> counters_;  // per slice; 0 where it is no counter
  std::vector<Grown> grown_;       // per slice; empty where it does not grow
  std::vector<size_t> checked_;    // per slice that follows a counter: positions that are known to be finite
  std::atomic<bool> busy_{false};
};

}  // namespace continuo
