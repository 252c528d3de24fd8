#include "runtime/scheduler/pace.h"

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
  Habit alice, bob;
  CHECK(!pace.wait_until(0, at(1)));
  for (int n = 0; n < 4; ++n) pace.stepped(1, 0, 10e-3);
  pace.answered(alice, true, at(1));
  // No other session is ready, or only readers are.
  const auto until = pace.wait_until(0, at(1));
  CHECK(until && *until > at(1) && *until <= at(1.01));
  // While it is absent it still counts as generating: no step full of readers begins.
  CHECK(pace.reading_rows(0, most) < most);
  CHECK(!pace.wait_until(0, at(1.05)));
  pace.returned(alice, false, at(1.0001));
  CHECK(!pace.wait_until(0, at(1.0002)) && pace.reading_rows(0, most) == most);
  // Many ready sessions do not wait for one. No session waits for one that stays absent, and after a while it is
  // dropped.
  pace.stepped(16, 0, 0.5e-3);
  pace.stepped(16, 0, 0.5e-3);
  pace.answered(bob, true, at(2));
  CHECK(!pace.wait_until(16, at(2)));
  CHECK(!pace.wait_until(0, at(2.2)));
  CHECK(pace.reading_rows(0, most) == most);
}

TEST("pace: a context that came back soon is expected after its next answers, for a few times as long as it took") {
  Pace pace(2);
  Habit program;
  for (int n = 0; n < 4; ++n) pace.stepped(1, 0, 10e-3);
  pace.stepped(1, 10, 20e-3);
  const auto expected = [&](double now) {
    (void)pace.wait_until(0, at(now));
    return pace.reading_rows(0, most) < most;
  };
  // Its first item tells nothing, nor does its first answer.
  pace.returned(program, true, at(1));
  pace.answered(program, false, at(1.01));
  CHECK(!expected(1.01));
  // It came back within 2 ms. From now on readers leave room for it, and the next step begins with it.
  pace.returned(program, true, at(1.012));
  CHECK(!expected(1.012));
  pace.answered(program, false, at(1.02));
  CHECK(expected(1.02));
  const auto until = pace.wait_until(0, at(1.02));
  CHECK(until && *until > at(1.022) && *until <= at(1.03));
  // Not for longer than some replies: the readers' speed is not lost to one that is done.
  CHECK(expected(1.03) && !pace.wait_until(0, at(1.0301)));
  CHECK(!expected(1.037) && !pace.expects_somebody());
  // One that comes back later than that is expected for longer, but no step waits for it.
  pace.returned(program, true, at(1.07));
  pace.answered(program, false, at(1.08));
  CHECK(expected(1.09) && !pace.wait_until(0, at(1.08)));
  // One that stays away for long again and again has lost the habit.
  int late = 0;
  do {
    ++late;
    pace.returned(program, true, at(2 + late));
    pace.answered(program, false, at(2 + late));
  } while (late < 10 && expected(2 + late));
  CHECK(late > 1 && late < 8);
}

TEST("pace: a context that only reads is not expected to generate") {
  Pace pace(2);
  Habit program;
  double now = 1;
  const auto call = [&](bool generates) {
    pace.returned(program, generates, at(now));
    pace.answered(program, false, at(now + 0.01));
    now += 0.011;
    return pace.expects_somebody();
  };
  // A conversation reads and generates by turns.
  (void)call(false);
  for (int turn = 0; turn < 3; ++turn) {
    CHECK(call(true));
    CHECK(call(false));
  }
  int items = 0;
  while (call(false)) ++items;
  CHECK(items > 0 && items < 8);
  CHECK(call(true));
}

TEST("pace: a short message is read in one step, unless others generate") {
  Pace pace(2);
  for (int n = 0; n < 4; ++n) pace.stepped(1, 0, 10e-3);
  for (int n = 0; n < 20; ++n) pace.stepped(1, 10, 20e-3);
  const size_t rows = pace.reading_rows(1, most);
  CHECK(rows >= 5 && rows <= 15);
  CHECK(pace.reading_rows(0, most, 1) == rows && pace.reading_rows(0, most, 64) == 64);
  CHECK(pace.reading_rows(0, 20, 64) == 20 && pace.reading_rows(1, most, 64) == rows);
}

}  // namespace continuo::test::pace_test
