#include "runtime/scheduler/pace.h"

#include <algorithm>
#include <bit>

namespace continuo {

namespace {

// Reading rows of a step while the time of a reading row is still unknown.
constexpr size_t first_rows = 8;
// Steps with reading rows between two measurements without; and measurements before the first figure is used.
constexpr size_t measure_every = 64, first_measurements = 2;
// A context that stays absent for longer is not waited for, and no longer counts as generating.
constexpr double reply_limit_seconds = 0.1;
// A habit is no promise. The context is expected for so many times its usual reply, and a step waits for it only where
// the wait is worth so many replies. More items in a row that only read or come late end the habit: one may be late
// because the machine was busy.
constexpr double habit_lasts = 8, habit_waits = 4;
constexpr unsigned habit_without = 4;

double seconds_between(Pace::Time from, Pace::Time to) { return std::chrono::duration<double>(to - from).count(); }
Pace::Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Pace::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Pace::Alone& Pace::alone(size_t generating) {
  return alone_[std::min(alone_.size() - 1, static_cast<size_t>(std::bit_width(std::max<size_t>(1, generating))) - 1)];
}

size_t Pace::reading_rows(size_t generating, size_t most, size_t message) {
  if ((!somebody_generates(generating) && message == 0) || most == 0) return most;
  auto& own = alone(generating);
  const bool stale = own.measured < first_measurements || own.age >= measure_every;
  if (generating > 0 && stale) return 0;
  const size_t least = std::clamp<size_t>(generating == 0 ? message : 1, 1, most);
  if (row_seconds_ <= 0 || own.measured == 0) return std::clamp(first_rows, least, most);
  const double rows = (step_target_ - 1) * own.seconds / row_seconds_;
  return std::clamp<size_t>(rows < static_cast<double>(most) ? static_cast<size_t>(rows) : most, least, most);
}

void Pace::stepped(size_t generating, size_t reading, double seconds) {
  if (generating == 0) {
    // The time to read the weights is in this figure too, so it only serves until a better one comes.
    if (row_seconds_ <= 0 && reading > 0) row_seconds_ = seconds / static_cast<double>(reading);
    return;
  }
  auto& own = alone(generating);
  if (reading == 0) {
    // Other processes can only slow a step down. So a smaller time replaces the old one, and a larger one raises it by
    // at most a quarter.
    own.seconds = own.measured == 0 ? seconds : std::min(seconds, own.seconds * 1.25);
    ++own.measured;
    own.age = 0;
    return;
  }
  ++own.age;
  if (own.measured == 0) return;
  const double sample = std::max(0.0, seconds - own.seconds) / static_cast<double>(reading);
  // The step may have been interrupted by another process: one sample counts at most as a factor of two.
  const double clamped = row_seconds_ > 0 ? std::clamp(sample, row_seconds_ / 2, row_seconds_ * 2) : sample;
  row_seconds_ += (clamped - row_seconds_) / (row_seconds_ > 0 ? 4 : 1);
}

void Pace::answered(Habit& habit, bool promised, Time now) {
  habit.answered = now;
  const double lasts =
      promised ? reply_limit_seconds : std::min(reply_limit_seconds, habit_lasts * habit.reply_seconds);
  if (lasts <= 0) return;
  expected_[&habit] = {now, now + duration_of(lasts), promised, habit.reply_seconds};
}

void Pace::note_promised(double seconds) {
  reply_seconds_ += (std::min(seconds, reply_limit_seconds) - reply_seconds_) / 8;
}

void Pace::returned(Habit& habit, bool generates, Time now) {
  if (const auto found = expected_.find(&habit); found != expected_.end()) {
    if (found->second.promised) note_promised(seconds_between(found->second.since, now));
    expected_.erase(found);
  }
  const double reply = habit.answered ? seconds_between(*habit.answered, now) : reply_limit_seconds;
  if (!generates || reply >= reply_limit_seconds) {
    if (++habit.without > habit_without) habit.reply_seconds = 0;
    return;
  }
  habit.without = 0;
  habit.reply_seconds += (std::max(1e-6, reply) - habit.reply_seconds) / (habit.reply_seconds > 0 ? 8 : 1);
}

std::optional<Pace::Time> Pace::wait_until(size_t generating, Time now) {
  std::erase_if(expected_, [&](const auto& entry) {
    const auto& [habit, context] = entry;
    if (now < context.until) return false;
    if (context.promised) note_promised(reply_limit_seconds);
    return true;
  });
  if (expected_.empty()) return std::nullopt;
  // A step without them delays each absent session by a step; a wait delays each ready session by the wait.
  const auto& own = alone(generating + expected_.size());
  if (own.measured == 0) return std::nullopt;
  const auto worth_of = [&](size_t absent) {
    return generating == 0 ? own.seconds : own.seconds * static_cast<double>(absent) / static_cast<double>(generating);
  };
  const auto reply_of = [&](const Expected& context) {
    return context.promised ? reply_seconds_ : context.reply_seconds;
  };
  const auto is_worth = [&](const Expected& context, double worth) {
    return reply_of(context) * (context.promised ? 1 : habit_waits) <= worth;
  };
  const double most = worth_of(expected_.size());
  const double worth = worth_of(static_cast<size_t>(std::count_if(
      expected_.begin(), expected_.end(), [&](const auto& entry) { return is_worth(entry.second, most); })));
  Time until{};
  for (const auto& [habit, context] : expected_) {
    if (!is_worth(context, worth)) continue;
    const double longest = std::min({worth, std::max(4 * reply_of(context), worth / 4), reply_limit_seconds});
    until = std::max(until, context.since + duration_of(longest));
  }
  return until > now ? std::optional(until) : std::nullopt;
}

}  // namespace continuo
