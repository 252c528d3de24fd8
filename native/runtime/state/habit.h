// Habit: what the engine knows of the calls of one context. It decides the order and the size of work, and no bit.
#pragma once

#include <chrono>
#include <optional>

namespace continuo {

struct Habit {
  std::optional<std::chrono::steady_clock::time_point> answered = {};  // when its last item was
  double reply_seconds = 0;  // from an answer to the next item that generates, a moving average; 0: not soon (pace.h)
  unsigned without = 0;      // items since the last one that came soon and generated
  double place = -1;         // among those that read, in tokens; −1: it has read nothing (read_turns.h)
};

}  // namespace continuo
