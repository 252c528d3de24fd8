// Pace: how many rows of a step readers may have, and whether a step should wait a moment for a session that will be
// back at once.
//
// A step that carries a row of a generating session is that session's time between two tokens. So while somebody
// generates, a step may take `step_target` times what the generating rows take alone, and readers share that. Both
// times are measured: the time alone in steps without readers (every 64th step carries none, to measure this); the time
// of a reading row in all others.
//
// A session that generates hands in a few tokens' work at a time. Between two items it is away for a moment, and a step
// that began without it would cost it a whole step. While waiting for it costs the others less than that, the engine
// waits.
//
// Nothing here can be seen in a result: which rows share a step changes no bit.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <unordered_map>

namespace continuo {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  // `step_target`: more than 1.
  explicit Pace(double step_target) : step_target_(step_target) {}

  // How many of the `most` rows that are left in a step readers may have beside `generating` rows; 0 where the step is
  // to measure these alone. All of them while nobody generates.
  size_t reading_rows(size_t generating, size_t most);
  // A step with so many rows of each sort took so long.
  void stepped(size_t generating, size_t reading, double seconds);

  // A session was answered and is expected back at once; it came back. `session` only tells them apart.
  void answered(const void* session, Time now);
  void returned(const void* session, Time now);
  bool expects_somebody() const { return !between_items_.empty(); }
  // Until when to wait for sessions that were answered, where `generating` others are ready; nothing: do not wait.
  std::optional<Time> wait_until(size_t generating, Time now);

 private:
  // What steps with 2^n to 2^(n+1) − 1 generating rows take, s.
  struct Alone {
    double seconds = 0;
    size_t measured = 0;
    size_t age = 0;  // steps since
  };
  Alone& alone(size_t generating);
  bool somebody_generates(size_t generating) const { return generating > 0 || expects_somebody(); }
  void note_reply(double seconds);

  double step_target_;
  std::array<Alone, 16> alone_;
  double row_seconds_ = 0;  // of a reading row; 0: not known yet
  double reply_seconds_ = 200e-6;
  std::unordered_map<const void*, Time> between_items_;  // sessions that were answered and are not back, and since when
};

}  // namespace continuo
