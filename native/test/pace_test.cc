#include "runtime/pace.h"

#include <cmath>

#include "test/check.h"

namespace continuo::test::pace_test {

namespace {

constexpr size_t most = 127;
Pace::Time at(double seconds) {
  return Pace::Time(std::chrono::duration_cast<Pace::Clock::duration>(std::chrono::duration<double>(seconds)));
}

// A machine whose step takes `base`, plus `row` for each reading row, plus some random noise.
struct Machine {
  double base, row;
  test::Random random{31};
  double step(size_t reading) {
    return (base + row * static_cast<double>(reading)) * static_cast<double>(random.uniform(0.95f, 1.05f));
  }
};

}  // namespace

TEST("pace: while no session generates, readers have every row") {
  Pace pace(2);
  CHECK(pace.reading_rows(0, most) == most);
  pace.stepped(0, most, 1);
  CHECK(pace.reading_rows(0, most) == most && pace.reading_rows(0, 3) == 3);
}

TEST(
    "pace: beside generating rows a step takes about the target, readers are never without a row for long, and both "
    "follow the machine") {
  for (const double target : {1.5, 2.0, 4.0}) {
    Pace pace(target);
    for (Machine machine : {Machine{12e-3, 0.35e-3}, Machine{100e-6, 40e-6}, Machine{12e-3, 30e-3}}) {
      double longest = 0, total = 0;
      size_t without = 0, steps = 0, rows = 0;
      for (int n = 0; n < 1000; ++n) {
        const size_t reading = pace.reading_rows(2, most);
        const double took = machine.step(reading);
        pace.stepped(2, reading, took);
        without = reading == 0 ? without + 1 : 0;
        CHECK(without <= 2);
        // It learns in a few steps.
        if (n < 100) continue;
        ++steps;
        rows += reading;
        total += took;
        longest = std::max(longest, took);
      }
      // A step takes one reading row even where that alone exceeds the target, so that readers make progress.
      const double expected = std::max(target * machine.base, machine.base + machine.row);
      CHECK(longest < 1.35 * expected);
      CHECK(static_cast<double>(rows) >
            0.6 * static_cast<double>(steps) *
                std::min<double>(most, std::max(1.0, (target - 1) * machine.base / machine.row)));
    }
  }
}

TEST("pace: one slow step changes little") {
  Pace pace(2);
  Machine machine{12e-3, 0.35e-3};
  for (int n = 0; n < 200; ++n) {
    const size_t reading = pace.reading_rows(1, most);
    pace.stepped(1, reading, machine.step(reading));
  }
  const size_t before = pace.reading_rows(1, most);
  CHECK(before > 20 && before < 50);
  pace.stepped(1, before, 1.0);
  const size_t after = pace.reading_rows(1, most);
  CHECK(after >= before / 2 && after <= before);
}

TEST("pace: a step waits for an answered session as long as the wait costs the others less than it would lose") {
  Pace pace(2);
  int alice = 0, bob = 0;
  CHECK(!pace.wait_until(0, at(1)));
  for (int n = 0; n < 4; ++n) pace.stepped(1, 0, 10e-3);
  pace.answered(&alice, at(1));
  // No other session is ready, or only readers are.
  const auto until = pace.wait_until(0, at(1));
  CHECK(until && *until > at(1) && *until <= at(1.01));
  // While it is absent it still counts as generating: no step full of readers begins.
  CHECK(pace.reading_rows(0, most) < most);
  CHECK(!pace.wait_until(0, at(1.05)));
  pace.returned(&alice, at(1.0001));
  CHECK(!pace.wait_until(0, at(1.0002)) && pace.reading_rows(0, most) == most);
  // Many ready sessions do not wait for one. No session waits for one that stays absent, and after a while it is
  // dropped.
  pace.stepped(16, 0, 0.5e-3);
  pace.stepped(16, 0, 0.5e-3);
  pace.answered(&bob, at(2));
  CHECK(!pace.wait_until(16, at(2)));
  CHECK(!pace.wait_until(0, at(2.2)));
  CHECK(pace.reading_rows(0, most) == most);
}

}  // namespace continuo::test::pace_test
