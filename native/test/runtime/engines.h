// Engines for tests: they load a model from memory, and their calls wait for the answer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <future>
#include <unistd.h>

#include "backends/cpu/device.h"
#include "runtime/scheduler/engine.h"
#include "test/image.h"

namespace continuo::test {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::byte>& bytes) {
    char name[] = "/tmp/continuo-test-XXXXXX";
    const int fd = ::mkstemp(name);
    path = name;
    size_t done = 0;
    while (fd >= 0 && done < bytes.size()) {
      const auto n = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    ::close(fd);
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
  std::string path;
};

struct Opened {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Model> model;
};

inline Opened open(const SmallModel& small, size_t threads, Engine::OpenDevice device = open_cpu) {
  const TemporaryFile file(small.image);
  auto engine = std::make_unique<Engine>(threads);
  std::promise<Result<std::shared_ptr<const Model>>> done;
  engine->load(
      small.graph, {file.path}, {}, {}, [&](auto result) { done.set_value(std::move(result)); }, std::move(device));
  auto model = done.get_future().get();
  CHECK(model);
  return {std::move(engine), *model};
}

// Result of a call that takes a callback, or the reason for its refusal.
template <class T> Result<T> answered(const auto& submit) {
  auto done = std::make_shared<std::promise<Result<T>>>();
  auto future = done->get_future();
  const Status accepted = submit([done](auto result) { done->set_value(std::move(result)); });
  if (!accepted) return accepted.error();
  return future.get();
}

// Submits these items and waits for all answers. Where one item is refused, waits only for those before it.
inline Result<std::vector<ItemResult>> process(Engine& engine, std::vector<Item> items) {
  std::vector<std::future<ItemResult>> futures;
  Status accepted = Done{};
  for (auto& item : items) {
    auto done = std::make_shared<std::promise<ItemResult>>();
    auto future = done->get_future();
    accepted = engine.submit(std::move(item), [done](ItemResult result) { done->set_value(std::move(result)); });
    if (!accepted) break;
    futures.push_back(std::move(future));
  }
  std::vector<ItemResult> results;
  for (auto& future : futures) results.push_back(future.get());
  if (!accepted) return accepted.error();
  return results;
}

inline Result<std::vector<float>> logits(Engine& engine, std::shared_ptr<Context> context) {
  return answered<std::vector<float>>([&](auto done) { return engine.logits(std::move(context), std::move(done)); });
}

inline std::vector<int32_t> random_tokens(Random& random, size_t n, size_t vocabulary) {
  std::vector<int32_t> out(n);
  for (auto& token : out) token = static_cast<int32_t>(random.below(vocabulary));
  return out;
}

}  // namespace continuo::test
