// Whether drafts pay for one number of generating sessions, found by trying.
//
// Drafts are chosen by a model of a step's time that is linear in its rows (drafts.h). Kernels take rows in blocks, and
// draws, copies and notes cost beside them, so beside other sessions the model can be wrong by more than drafts gain.
// Hence windows of some steps with drafts and without, whose tokens a second are compared. The way that is better
// stays, and the other one is tried at growing distances. Nothing is tried where drafts gain much by the model, too:
// then a window without them would be the loss.
#pragma once

#include <cstddef>
#include <cstdint>

namespace continuo {

class DraftTrial {
 public:
  // Whether the steps of this window may have drafts.
  bool drafting() const { return drafting_; }
  // A step is over. `plain`: the seconds that it would have taken without drafts, by the model. Of a step without rows,
  // whose tokens were computed ahead: `whole` is false.
  struct Step {
    size_t sessions, tokens;
    double seconds, plain;
    bool guessed;  // it had drafts, or the draft model was asked
    bool whole = true;
  };
  void stepped(const Step& step);

 private:
  void decide(bool clear);

  bool drafting_ = true, trying_ = false;
  // Of this window.
  struct Sums {
    uint32_t steps = 0, guessed = 0;
    double sessions = 0, tokens = 0, seconds = 0, plain = 0;
  };
  Sums window_ = {};
  double with_ = 0, without_ = 0;  // tokens a second, moving averages; 0: not measured
  // Windows until the other way is tried, and from one try to the next.
  static constexpr uint32_t least_gap = 2, most_gap = 256;
  uint32_t left_ = least_gap, gap_ = least_gap;
};

}  // namespace continuo
