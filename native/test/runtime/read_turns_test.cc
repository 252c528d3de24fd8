#include "runtime/scheduler/read_turns.h"

#include <vector>

#include "test/check.h"

namespace continuo::test::read_turns_test {

namespace {

// Contexts whose items wait for turns.
struct Queue {
  ReadTurns turns;
  struct Reader {
    double place = -1;
    size_t left = 0;
    bool message = false;
    size_t read = 0;
  };
  std::vector<Reader> readers;
  void arrive(size_t reader, size_t tokens, bool message = false) {
    auto& own = readers[reader];
    own.place = turns.enter(own.place);
    own.left = tokens;
    own.message = message;
  }
  // Gives `rows` rows in turns of up to 16; the reader that had the first turn.
  size_t step(size_t rows) {
    size_t items = 0, messages = 0, first = readers.size();
    for (const auto& reader : readers) {
      items += reader.left > 0;
      messages += reader.left > 0 && reader.message;
    }
    turns.among(items, messages);
    while (rows > 0) {
      Reader* next = nullptr;
      for (auto& reader : readers)
        if (reader.left > 0 && (!next || reader.place < next->place)) next = &reader;
      if (!next) break;
      if (first == readers.size()) first = static_cast<size_t>(next - readers.data());
      const size_t taken = std::min({rows, next->left, size_t{16}});
      next->place = turns.read(next->place, taken, next->message);
      next->left -= taken;
      next->read += taken;
      rows -= taken;
    }
    return first;
  }
};

}  // namespace

TEST("read turns: where a step fetches more state than weights, turns are as long as its rows and threads allow") {
  CHECK(ReadTurns::rows_for(500'000, 12'000'000, 128, 2) == 16);
  CHECK(ReadTurns::rows_for(30'000, 15'000, 128, 2) == 32);
  CHECK(ReadTurns::rows_for(1'000'000, 50'000, 128, 2) == 64);
  CHECK(ReadTurns::rows_for(1'000'000, 0, 128, 16) == 16);
  CHECK(ReadTurns::rows_for(0, 0, 1, 1) == 16);
}

TEST("read turns: those that read all the time read the same") {
  Queue queue;
  queue.readers.resize(5);
  for (size_t n = 0; n < 5; ++n) queue.arrive(n, 100'000);
  for (int n = 0; n < 100; ++n) (void)queue.step(13);
  for (const auto& reader : queue.readers) CHECK(reader.read >= 1300 / 5 - 16 && reader.read <= 1300 / 5 + 16);
}

TEST("read turns: one that was away has the next turns, and no more than a short message of them") {
  Queue queue;
  queue.readers.resize(9);
  queue.arrive(0, 8);
  (void)queue.step(8);
  for (size_t n = 1; n < 9; ++n) queue.arrive(n, 100'000);
  for (int n = 0; n < 1000; ++n) (void)queue.step(64);
  queue.arrive(0, 10'000);
  const size_t before = queue.readers[0].read;
  CHECK(queue.step(ReadTurns::lead) == 0);
  CHECK(queue.readers[0].read - before == ReadTurns::lead);
  for (int n = 0; n < 90; ++n) (void)queue.step(64);
  const size_t share = (queue.readers[0].read - before - ReadTurns::lead) * 9;
  CHECK(share > 90 * 64 * 8 / 10 && share < 90 * 64 * 12 / 10);
}

TEST("read turns: messages that follow each other read as much as all others together, and hold nobody up for longer") {
  for (const size_t messages : {1, 3}) {
    Queue queue;
    queue.readers.resize(messages + 8);
    for (size_t n = 0; n < 8; ++n) queue.arrive(messages + n, 1'000'000);
    size_t of_messages = 0, of_others = 0;
    for (int n = 0; n < 4000; ++n) {
      for (size_t one = 0; one < messages; ++one)
        if (queue.readers[one].left == 0) queue.arrive(one, 16, true);
      (void)queue.step(16);
    }
    for (size_t n = 0; n < queue.readers.size(); ++n) (n < messages ? of_messages : of_others) += queue.readers[n].read;
    const double share = static_cast<double>(of_messages) / static_cast<double>(of_messages + of_others);
    CHECK(share > 0.4 && share < 0.6);
  }
}

}  // namespace continuo::test::read_turns_test
