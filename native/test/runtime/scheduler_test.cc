#include "backends/cpu/device.h"
#include "backends/cpu/kernels/kernels.h"
#include "test/runtime/engines.h"

namespace continuo::test::scheduler_test {

namespace {

const test::SmallModel& shared_small() {
  static const auto small = test::small_model(21, 40, 48, 3, Dtype::f32);
  return small;
}

std::future<ItemResult> submit(Engine& engine, Item item, std::function<void()> seen = {}) {
  auto done = std::make_shared<std::promise<ItemResult>>();
  auto future = done->get_future();
  CHECK(engine.submit(std::move(item), [done, seen](ItemResult result) {
    if (seen) seen();
    done->set_value(std::move(result));
  }));
  return future;
}

bool is_done(const std::future<ItemResult>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// The bytes of each token of the small model: a, bc, d, …, alternately one and two letters.
std::shared_ptr<const TokenBytes> letters() {
  auto out = std::make_shared<TokenBytes>();
  for (int token = 0; token < 40; ++token) {
    out->bytes += token % 2 == 0 ? std::string(1, static_cast<char>('a' + token % 7))
                                 : std::string{static_cast<char>('a' + token % 5), 'z'};
    out->ends.push_back(out->bytes.size());
  }
  return out;
}

// A CPU device on which a context that was sent away cannot be pinned until its ticket opens.
class SlowDevice final : public CpuDevice {
 public:
  SlowDevice() : CpuDevice(*runnable_kernels().front()) {}
  std::shared_ptr<Ticket> awaited(Pageable& pageable) override {
    const std::lock_guard lock(mutex);
    ++asked;
    const auto found = away.find(&pageable);
    return found == away.end() ? nullptr : found->second;
  }
  std::shared_ptr<Ticket> send_away(const std::shared_ptr<Context>& context,
                                    std::shared_ptr<Ticket> ticket = std::make_shared<Ticket>()) {
    const std::lock_guard lock(mutex);
    away[context.get()] = ticket;
    return ticket;
  }
  std::atomic<size_t> asked{0};

 private:
  std::mutex mutex;
  std::map<Pageable*, std::shared_ptr<Ticket>> away;
};

test::Opened open_slow(const std::shared_ptr<SlowDevice>& device) {
  return open(shared_small(), 2,
              [device]() -> Result<std::shared_ptr<Device>> { return std::shared_ptr<Device>(device); });
}

}  // namespace

TEST("scheduler: a generating item has a row in every step and is answered when it is done, whatever others read") {
  const auto device = std::make_shared<SlowDevice>();
  auto opened = open_slow(device);
  test::Random random(22);
  auto writer = std::make_shared<Context>(opened.model);
  CHECK(process(*opened.engine, {{writer, {1, 2, 3}, false, 0, {}}}));
  // All items begin when the ticket opens. The counting happens on the engine's thread.
  const auto ticket = device->send_away(writer);
  const uint64_t before = opened.engine->counts().steps;
  uint64_t after = 0;
  std::atomic<int> read{0};
  int read_before = -1;
  std::vector<std::future<ItemResult>> readers;
  for (int i = 0; i < 63; ++i) {
    auto context = std::make_shared<Context>(opened.model);
    device->send_away(context, ticket);
    readers.push_back(submit(*opened.engine, {context, random_tokens(random, 200, 40), true, 0, {}}, [&] { ++read; }));
  }
  auto writing = submit(*opened.engine, {writer, {}, false, 64, {}}, [&] {
    after = opened.engine->counts().steps;
    read_before = read;
  });
  ticket->open();
  CHECK(writing.get().generated.size() == 64);
  // The ticket may open while a step is being planned, after the writer was passed over: then it takes one step more.
  CHECK(after - before >= 64 && after - before <= 65 && read_before == 0);
  for (auto& reader : readers) CHECK(!reader.get().error);
}

TEST("scheduler: readers take turns, so that one with little to read does not wait for those with much") {
  const auto device = std::make_shared<SlowDevice>();
  auto opened = open_slow(device);
  test::Random random(23);
  const auto ticket = std::make_shared<Ticket>();
  std::atomic<int> order{0};
  int place = -1;
  std::vector<std::future<ItemResult>> all;
  for (int i = 0; i < 21; ++i) {
    auto context = std::make_shared<Context>(opened.model);
    device->send_away(context, ticket);
    const size_t count = i == 20 ? 5 : 400;
    all.push_back(submit(*opened.engine, {context, random_tokens(random, count, 40), false, 0, {}}, [&, count] {
      const int own = order++;
      if (count == 5) place = own;
    }));
  }
  ticket->open();
  for (auto& one : all) CHECK(!one.get().error);
  CHECK(place == 0);
}

TEST("scheduler: a reader goes on beside more sessions that generate than a step has rows") {
  const auto device = std::make_shared<SlowDevice>();
  auto opened = open_slow(device);
  test::Random random(26);
  std::vector<std::shared_ptr<Context>> contexts;
  std::vector<Item> first;
  for (int i = 0; i < 140; ++i) {
    contexts.push_back(std::make_shared<Context>(opened.model));
    first.push_back({contexts.back(), {i % 40}, false, 0, {}});
  }
  CHECK(process(*opened.engine, first));
  const auto ticket = std::make_shared<Ticket>();
  std::atomic<int> order{0};
  int place = -1;
  std::vector<std::future<ItemResult>> all;
  for (auto& context : contexts) {
    device->send_away(context, ticket);
    all.push_back(submit(*opened.engine, {context, {}, false, 100, {}}, [&] { ++order; }));
  }
  auto reader = std::make_shared<Context>(opened.model);
  device->send_away(reader, ticket);
  auto reading = submit(*opened.engine, {reader, random_tokens(random, 60, 40), true, 0, {}}, [&] { place = order; });
  ticket->open();
  for (auto& one : all) CHECK(one.get().generated.size() == 100);
  CHECK(!reading.get().error && reader->head.pulse == 60);
  // The reader needs four turns of 16 rows and gets one in 17 steps: so it ends within the first hundred steps, before
  // the first 128 generating items are done.
  CHECK(place == 0);
}

TEST(
    "scheduler: a row that waits for a ticket stays out of the steps while the others go on, and has the same bits "
    "when it comes in") {
  const auto device = std::make_shared<SlowDevice>();
  auto opened = open_slow(device);
  test::Random random(24);
  const auto tokens = random_tokens(random, 300, 40);
  const Sampling sampling{1, 0, 1, 7};
  std::vector<std::shared_ptr<Context>> contexts;
  for (int i = 0; i < 3; ++i) contexts.push_back(std::make_shared<Context>(opened.model));
  const auto wanted = process(*opened.engine, {{contexts[0], tokens, true, 20, sampling}});
  CHECK(wanted);
  const auto ticket = device->send_away(contexts[1]);
  auto parked = submit(*opened.engine, {contexts[1], tokens, true, 20, sampling});
  const auto beside = process(*opened.engine, {{contexts[2], tokens, true, 20, sampling}});
  CHECK(beside && (*beside)[0].generated == (*wanted)[0].generated);
  CHECK(!is_done(parked) && contexts[1]->head.pulse == 0);
  // With no other work the engine sleeps: it asks for the ticket once for each item that arrives.
  const size_t asked = device->asked;
  CHECK(process(*opened.engine, {{contexts[0], {}, false, 0, {}}}));
  CHECK(device->asked == asked);
  ticket->open();
  const auto late = parked.get();
  CHECK(!late.error && late.generated == (*wanted)[0].generated);
  CHECK(contexts[1]->head.chain == contexts[0]->head.chain && contexts[2]->head.chain == contexts[0]->head.chain);
  // An item that still waits when the engine stops is answered. A ticket that opens after the engine is gone does no
  // harm.
  const auto last = device->send_away(contexts[1]);
  auto never = submit(*opened.engine, {contexts[1], tokens, true, 0, {}});
  opened.engine->stop();
  CHECK(never.get().error);
  opened.engine.reset();
  last->open();
}

TEST("scheduler: a generation ends with any of its end tokens, which is not fed") {
  auto opened = open(shared_small(), 1);
  const Sampling sampling{1.2f, 0, 1, 5};
  const auto start = [&] {
    auto context = std::make_shared<Context>(opened.model);
    CHECK(process(*opened.engine, {{context, {1, 2, 3}, false, 0, {}}}));
    return context;
  };
  const auto whole = process(*opened.engine, {{start(), {}, false, 60, sampling}});
  const auto& drawn = (*whole)[0].generated;
  for (const auto& ends : std::vector<std::vector<int32_t>>{{drawn[20]}, {drawn[40], drawn[9]}, {drawn[0]}}) {
    const auto first = std::find_if(drawn.begin(), drawn.end(), [&](int32_t token) {
      return std::find(ends.begin(), ends.end(), token) != ends.end();
    });
    auto context = start();
    const auto got = process(*opened.engine, {{context, {}, false, 60, sampling, ends}});
    CHECK((*got)[0].ended == Ended::end_token);
    CHECK((*got)[0].generated == std::vector<int32_t>(drawn.begin(), first));
    CHECK(context->head.pulse == 3 + (*got)[0].generated.size());
  }
}

TEST(
    "scheduler: a generation ends with the token in which a stop string ends, wherever it began and however it is cut "
    "into items") {
  auto opened = open(shared_small(), 1);
  test::Random random(25);
  const auto bytes = letters();
  for (uint64_t round = 0; round < 40; ++round) {
    const Sampling sampling{1.5f, 0, 1, round};
    const auto start = [&] {
      auto context = std::make_shared<Context>(opened.model);
      CHECK(process(*opened.engine, {{context, {1, 2, 3}, false, 0, {}}}));
      return context;
    };
    auto free = start();
    const auto drawn = (*process(*opened.engine, {{free, {}, false, 50, sampling}}))[0].generated;
    std::string text;
    std::vector<size_t> ends;
    for (const int32_t token : drawn) ends.push_back((text += bytes->of(token)).size());
    // Strings that occur in the text, and one that may not.
    std::vector<std::string> strings{"zzzz"};
    for (int i = 0; i < 2; ++i) strings.push_back(text.substr(random.below(text.size() - 4), 1 + random.below(4)));
    size_t end = text.size() + 1;
    for (const auto& string : strings) {
      if (const size_t found = text.find(string); found != std::string::npos)
        end = std::min(end, found + string.size());
    }
    const auto last = static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), end) - ends.begin());
    auto context = start();
    std::vector<int32_t> got;
    std::string tail;
    bool stopped = false;
    while (!stopped && got.size() < 50) {
      const auto count = static_cast<uint32_t>(std::min<size_t>(50 - got.size(), 1 + random.below(20)));
      const auto part = process(*opened.engine, {{context, {}, false, count, sampling, {}, {bytes, strings, tail}}});
      stopped = (*part)[0].ended == Ended::stop_string;
      CHECK(stopped || (*part)[0].generated.size() == count);
      for (const int32_t token : (*part)[0].generated) {
        got.push_back(token);
        tail += bytes->of(token);
      }
    }
    CHECK(stopped && got == std::vector<int32_t>(drawn.begin(), drawn.begin() + static_cast<ptrdiff_t>(last) + 1));
    CHECK(context->head.pulse == 3 + got.size());
  }
}

}  // namespace continuo::test::scheduler_test
