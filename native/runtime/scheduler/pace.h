// Pace: how many rows of a step the reading sessions may have, and whether the next step should wait a moment for a
// session whose next item is expected at once.
//
// The duration of a step is the time between two tokens of each session that generates in it. So while any session
// generates, a step may take `step_target` times what its generating rows take alone; reading rows share the
// difference. Both times are measured: the time of generating rows alone in steps without reading rows (every 64th step
// has none, for this measurement), the time of a reading row in all other steps.
//
// A generating session submits items of a few tokens each. Between two items it is absent for a moment, and a step that
// began without it would delay it by a whole step. The engine waits for it as long as the wait costs the other sessions
// less than that.
//
// An item may promise the next one (Item::more). The calls of a program cannot: none knows of the next. So each context
// has a habit (habit.h), the time from an answer to its next item that generates. While that was short, the context is
// expected after each answer for a few times as long, and until then steps stay as short as if it generated. So they do
// while such a context reads a short message, which it is going to answer.
//
// No result depends on the pace: which rows share a step changes no bit.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <unordered_map>

#include "runtime/state/habit.h"

namespace continuo {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  // `step_target`: more than 1.
  explicit Pace(double step_target) : step_target_(step_target) {}

  // Rows for reading sessions in a step that has `generating` rows and `most` rows left. All `most` while no session
  // generates; 0 in a step that measures generating rows alone. `message`: tokens left of short messages, which have
  // the first turns; where no session generates they are read in one step.
  size_t reading_rows(size_t generating, size_t most, size_t message = 0);
  // Reports the duration of a step with so many rows of each kind.
  void stepped(size_t generating, size_t reading, double seconds);

  // Reports that an item of a context was answered, with `promised` that its next item follows at once; and that the
  // next item arrived, and whether it generates. The address of the habit is the context's key here.
  void answered(Habit& habit, bool promised, Time now);
  void returned(Habit& habit, bool generates, Time now);
  bool expects_somebody() const { return !expected_.empty(); }
  // The time until which the next step should wait for expected sessions, while `generating` others are ready; none: it
  // should not wait. Forgets those that did not come in time.
  std::optional<Time> wait_until(size_t generating, Time now);

 private:
  // Steps with 2^n to 2^(n+1) − 1 generating rows and no reading row; n is the index into alone_.
  struct Alone {
    double seconds = 0;   // duration of a step
    size_t measured = 0;  // measurements so far
    size_t age = 0;       // steps with reading rows since the last measurement
  };
  Alone& alone(size_t generating);
  bool somebody_generates(size_t generating) const { return generating > 0 || expects_somebody(); }
  void note_promised(double seconds);

  double step_target_;
  std::array<Alone, 16> alone_;
  double row_seconds_ = 0;         // of a reading row; 0: not measured yet
  double reply_seconds_ = 200e-6;  // between an answer and the item that was promised with it: a moving average
  // A context between two items.
  struct Expected {
    Time since, until;
    bool promised;
    double reply_seconds;  // by its habit
  };
  std::unordered_map<const Habit*, Expected> expected_;
};

}  // namespace continuo
