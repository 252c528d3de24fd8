#include "runtime/pace.h"

#include <algorithm>
#include <bit>

namespace continuo {

namespace {

// Reading rows of a step while the time of a reading row is still unknown.
constexpr size_t first_rows = 8;
// Steps with reading rows between two measurements without; and measurements before the first figure is used.
constexpr size_t measure_every = 64, first_measurements = 2;
// A session that stays absent for longer is not waited for, and no longer counts as generating.
constexpr double reply_limit_seconds = 0.1;

double seconds_between(Pace::Time from, Pace::Time to) { return std::chrono::duration<double>(to - from).count(); }
Pace::Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Pace::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Pace::Alone& Pace::alone(size_t generating) {
  return alone_[std::min(alone_.size() - 1, static_cast<size_t>(std::bit_width(std::max<size_t>(1, generating))) - 1)];
}

size_t Pace::reading_rows(size_t generating, size_t most) {
  if (!somebody_generates(generating) || most == 0) return most;
  auto& own = alone(generating);
  const bool stale = own.measured < first_measurements || own.age >= measure_every;
  if (generating > 0 && stale) return 0;
  if (row_seconds_ <= 0 || own.measured == 0) return std::min(most, first_rows);
  const double rows = (step_target_ - 1) * own.seconds / row_seconds_;
  return std::clamp<size_t>(rows < static_cast<double>(most) ? static_cast<size_t>(rows) : most, 1, most);
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

void Pace::answered(const void* session, Time now) { between_items_[session] = now; }

void Pace::note_reply(double seconds) {
  reply_seconds_ += (std::min(seconds, reply_limit_seconds) - reply_seconds_) / 8;
}

void Pace::returned(const void* session, Time now) {
  const auto found = between_items_.find(session);
  if (found == between_items_.end()) return;
  note_reply(seconds_between(found->second, now));
  between_items_.erase(found);
}

std::optional<Pace::Time> Pace::wait_until(size_t generating, Time now) {
  for (auto entry = between_items_.begin(); entry != between_items_.end();) {
    if (seconds_between(entry->second, now) < reply_limit_seconds) {
      ++entry;
      continue;
    }
    note_reply(reply_limit_seconds);
    entry = between_items_.erase(entry);
  }
  if (between_items_.empty()) return std::nullopt;
  // A step without them delays each absent session by a step; a wait delays each ready session by the wait.
  const auto& own = alone(generating + between_items_.size());
  if (own.measured == 0) return std::nullopt;
  const double absent = static_cast<double>(between_items_.size());
  const double worth = generating == 0 ? own.seconds : own.seconds * absent / static_cast<double>(generating);
  if (reply_seconds_ > worth) return std::nullopt;
  Time last{};
  for (const auto& [session, since] : between_items_) last = std::max(last, since);
  const Time until =
      last + duration_of(std::min({worth, std::max(4 * reply_seconds_, worth / 4), reply_limit_seconds}));
  return until > now ? std::optional(until) : std::nullopt;
}

}  // namespace continuo
