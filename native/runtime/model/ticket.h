#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"

namespace continuo {

// A promise that bytes will be in memory: weights, blocks of a context, a context that was paged out. An item whose
// context waits for a ticket takes part in no step until the ticket opens.
class Ticket {
 public:
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // Opens the ticket, once: the bytes are in memory, or, with an error, they cannot be had. From any thread.
  void open(std::optional<Error> error = std::nullopt);
  // To be asked once the ticket is ready.
  const std::optional<Error>& error() const { return error_; }
  // Calls `wake` when the ticket opens, or at once where it is open already.
  void on_open(std::function<void()> wake);

 private:
  std::atomic<bool> ready_{false};
  std::optional<Error> error_;  // written before ready_
  std::mutex mutex_;
  std::vector<std::function<void()>> wakes_;
};

}  // namespace continuo
