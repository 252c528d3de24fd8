#include "runtime/drafts/draft_trial.h"

#include "test/runtime/engines.h"

namespace continuo::test::draft_trial_test {

namespace {

struct Machine {
  double gain;          // tokens a second with drafts, over those without
  double modelled = 1;  // the same, as the model of a step's time has it
  double noise = 0;     // share by which a step may be slower
  test::Random random{5};
  // Goes on for so many steps of 16 sessions. The share of them that might have drafts.
  double drafting(DraftTrial& trial, int steps) {
    int with = 0;
    for (int i = 0; i < steps; ++i) {
      const bool drafts = trial.drafting();
      with += drafts;
      const size_t tokens = drafts ? 20 : 16;
      const double plain = 1e-3 * (1 + noise * random.uniform(0, 1));
      const double seconds = drafts ? plain * 20 / (16 * gain) : plain;
      trial.stepped({16, tokens, seconds, drafts ? seconds * modelled * 16 / 20 : seconds, drafts});
    }
    return with / static_cast<double>(steps);
  }
};

}  // namespace

TEST(
    "draft trials: the way that gives more tokens a second stays, whatever the model says, and the other is tried now "
    "and then") {
  DraftTrial slower, faster;
  Machine slow{0.85, 1.1, 0.1}, fast{1.15, 0.9, 0.1};
  (void)slow.drafting(slower, 4000);
  (void)fast.drafting(faster, 4000);
  const double with = slow.drafting(slower, 40'000), without = 1 - fast.drafting(faster, 40'000);
  CHECK(with > 0 && with < 0.04);
  CHECK(without > 0 && without < 0.04);
}

TEST("draft trials: what becomes better is found") {
  DraftTrial trial;
  (void)Machine{0.85}.drafting(trial, 40'000);
  (void)Machine{1.15}.drafting(trial, 2 * 256 * 64);
  CHECK(Machine{1.15}.drafting(trial, 5000) > 0.9);
  (void)Machine{0.85}.drafting(trial, 2 * 256 * 64);
  CHECK(Machine{0.85}.drafting(trial, 5000) < 0.1);
}

TEST("draft trials: where drafts gain much no step goes without") {
  DraftTrial trial;
  Machine machine{2, 2};
  CHECK(machine.drafting(trial, 5000) == 1);
}

TEST("draft trials: a window in which nothing was guessed decides nothing") {
  DraftTrial trial;
  for (int i = 0; i < 5000; ++i) {
    trial.stepped({16, 16, 1e-3, 1e-3, false});
    CHECK(trial.drafting());
  }
}

TEST("draft trials: tokens of steps without rows count for their window") {
  DraftTrial trial;
  // Two tokens a row with drafts, of which every second one comes in a step without rows: 2 tokens in 1.5 ms.
  int with = 0;
  for (int i = 0; i < 4000; ++i) {
    const bool drafts = trial.drafting();
    with += drafts;
    trial.stepped({1, 1, drafts ? 1.4e-3 : 1e-3, 1e-3, drafts});
    if (drafts) trial.stepped({1, 1, 0.1e-3, 0.1e-3, false, false});
  }
  CHECK(with > 3900);
}

}  // namespace continuo::test::draft_trial_test
