#include "runtime/drafts/draft_trial.h"

#include <algorithm>
#include <utility>

namespace continuo {

namespace {

// Of a window, least: steps, and seconds unless it has many steps.
constexpr uint32_t least_steps = 8, many_steps = 64;
constexpr double least_seconds = 0.05;
// From one try to the next it takes so many times longer; where the other way was clearly worse, more.
constexpr uint32_t wait_more = 2, wait_much_more = 8;
constexpr double clearly_worse = 0.97;
// By the model drafts gain so much that it need not be tried.
constexpr double clear_gain = 1.25;
// The weight of a window in its average.
constexpr double newest_window = 0.5;

}  // namespace

void DraftTrial::stepped(const Step& step) {
  window_.steps += step.whole;
  window_.guessed += step.guessed;
  window_.sessions += step.whole ? static_cast<double>(step.sessions) : 0;
  window_.tokens += static_cast<double>(step.tokens);
  window_.seconds += step.seconds;
  window_.plain += step.plain;
  if (window_.steps < least_steps || (window_.seconds < least_seconds && window_.steps < many_steps)) return;
  const Sums sums = std::exchange(window_, {});
  // A window that might have had drafts and had none says nothing of them.
  if ((drafting_ && sums.guessed == 0) || sums.seconds <= 0) return;
  double& own = drafting_ ? with_ : without_;
  const double speed = sums.tokens / sums.seconds;
  own = own == 0 ? speed : own + newest_window * (speed - own);
  decide(sums.tokens * sums.plain > clear_gain * sums.sessions * sums.seconds);
}

// `clear`: drafts gained much in this window, by the model.
void DraftTrial::decide(bool clear) {
  if (drafting_ && clear) {
    trying_ = false;
    left_ = gap_;
    return;
  }
  const bool known = with_ > 0 && without_ > 0, better = with_ >= without_;
  if (known && better != drafting_) {
    // Either a try ends, or what was better is not any more.
    const double other = drafting_ ? with_ / without_ : without_ / with_;
    gap_ = trying_ ? std::min(gap_ * (other < clearly_worse ? wait_much_more : wait_more), most_gap) : least_gap;
    drafting_ = better;
    trying_ = false;
    left_ = gap_;
  } else if (known && trying_) {
    trying_ = false;
    left_ = gap_ = least_gap;
  } else if (!known || --left_ == 0) {
    drafting_ = !drafting_;
    trying_ = true;
  }
}

}  // namespace continuo
