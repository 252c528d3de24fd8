// Context: one mutable timeline. Its persistent memory, its clock, its chain.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "chain.h"
#include "memory.h"
#include "model.h"

namespace continuo {

struct Head {
  uint64_t pulse = 0;   // tokens fed since the session began
  uint64_t origin = 0;  // the pulse at which the current state began
  Chain chain;
};

class Context {
 public:
  explicit Context(std::shared_ptr<const Model> model);

  const Model& model() const { return *model_; }
  Head head;

  // Back to the first values; the clock goes on.
  void reset();
  // Copies the state out / in. `restore` refuses a wrong length, numbers that are not finite and a head that cannot be; then
  // nothing has changed.
  void serialize(std::span<std::byte> out) const;
  Status restore(std::span<const std::byte> state, const Head& head);

  size_t bytes() const { return memory_.size(); }
  float* state() { return memory_.as<float>(); }
  const float* state() const { return memory_.as<float>(); }
  bool finite() const;

  // A context belongs to one call at a time. `claim` fails while another call has it.
  bool claim() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }
  bool busy() const { return busy_.load(std::memory_order_acquire); }

  // Set when a number stopped being finite, or memory ran out in the middle of a step: nothing but reset and restore helps.
  bool broken = false;

 private:
  std::shared_ptr<const Model> model_;
  Memory memory_;
  std::atomic<bool> busy_{false};
};

}  // namespace continuo
