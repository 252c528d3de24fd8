#include "runtime/model/ticket.h"

#include <utility>

namespace continuo {

void Ticket::open(std::optional<Error> error) {
  std::vector<std::function<void()>> wakes;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ready_.store(true, std::memory_order_release);
    std::swap(wakes, wakes_);
  }
  for (const auto& wake : wakes) wake();
}

void Ticket::on_open(std::function<void()> wake) {
  {
    const std::lock_guard lock(mutex_);
    if (!ready()) {
      wakes_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace continuo
