#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

namespace continuo {

// A promise that bytes will be in memory: weights, blocks of a context, a context that was paged out. An item whose
// context waits for a ticket takes part in no step until the ticket opens.
class Ticket {
 public:
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // Opens the ticket: the bytes are in memory. From any thread.
  void open();
  // Calls `wake` when the ticket opens, or at once where it is open already.
  void on_open(std::function<void()> wake);

 private:
  std::atomic<bool> ready_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> wakes_;
};

}  // namespace continuo
