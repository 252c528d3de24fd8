// What exactness costs: the exact kernels and the same ones in free order (free_order.h), measured in turns in one
// process. bench/exactness.ts runs it.
//
//   continuo_exactness GRAPH.json WEIGHTS THREADS ROUNDS
//
// Prints a line of JSON for each measure: { "name", "exact": [[s, CPU s], …], "free": … }, round by round; first one
// with { "rms" }: how far the logits of the free side are from the exact ones, over the deviation of these. CPU is the
// time of all threads of the process, which a machine with other work does not stretch.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <time.h>

#include "backends/cpu/device.h"
#include "bench/free_order.h"
#include "runtime/scheduler/engine.h"

using namespace continuo;

namespace {

constexpr size_t prompt_tokens = 512, decoded = 48, sessions = 16, together_tokens = 16;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

struct Seconds {
  double wall, cpu;
  Seconds over(double count) const { return {wall / count, cpu / count}; }
};

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Seconds timed(const std::function<void()>& work) {
  const double cpu = cpu_seconds();
  const auto begun = std::chrono::steady_clock::now();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), cpu_seconds() - cpu};
}

std::vector<int32_t> tokens_of(size_t count, size_t seed, size_t vocabulary) {
  std::vector<int32_t> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>((i * 7919 + seed * 104729 + 17) % vocabulary);
  return out;
}

// An engine whose model computes with one table.
class Side {
 public:
  Side(const Kernels& kernels, const std::string& graph, const std::string& weights, size_t threads)
      : kernels_(kernels), engine_(threads) {
    std::promise<Result<std::shared_ptr<const Model>>> done;
    engine_.load(
        graph, {weights}, {}, {true, false, false}, [&](auto loaded) { done.set_value(std::move(loaded)); },
        [&kernels]() -> Result<std::shared_ptr<Device>> { return cpu_device(kernels); });
    auto loaded = done.get_future().get();
    if (!loaded) fail(loaded.error().message);
    model_ = *loaded;
  }

  const Kernels& kernels() const { return kernels_; }
  size_t vocabulary() const { return model_->graph.vocabulary(); }
  std::shared_ptr<Context> context() const { return std::make_shared<Context>(model_); }

  // Feeds each context its tokens and lets it generate `count` more, all together.
  void process(std::span<const std::shared_ptr<Context>> contexts, std::span<const std::vector<int32_t>> tokens,
               uint32_t count) {
    std::vector<std::future<ItemResult>> answers;
    for (size_t i = 0; i < contexts.size(); ++i) {
      Item item;
      item.context = contexts[i];
      if (!tokens.empty()) item.tokens = tokens[i];
      item.count = count;
      auto done = std::make_shared<std::promise<ItemResult>>();
      answers.push_back(done->get_future());
      const auto accepted =
          engine_.submit(std::move(item), [done](ItemResult result) { done->set_value(std::move(result)); });
      if (!accepted) fail(accepted.error().message);
    }
    for (auto& answer : answers) {
      if (const auto result = answer.get(); result.error) fail(result.error->message);
    }
  }

  std::vector<float> logits(const std::shared_ptr<Context>& context) {
    std::promise<Result<std::vector<float>>> done;
    const auto accepted = engine_.logits(context, [&](auto result) { done.set_value(std::move(result)); });
    if (!accepted) fail(accepted.error().message);
    auto result = done.get_future().get();
    if (!result) fail(result.error().message);
    return *result;
  }

 private:
  const Kernels& kernels_;
  Engine engine_;
  std::shared_ptr<const Model> model_;
};

// One head of 64 channels with random keys and values.
struct LoneHead {
  static constexpr size_t channels = 64;
  std::vector<float> q, k, v, y;
  LoneHead(size_t queries, size_t positions)
      : q(queries * channels), k(positions * channels), v(positions * channels), y(queries * channels) {
    uint32_t state = 1;
    for (auto* numbers : {&q, &k, &v}) {
      for (auto& number : *numbers) {
        state = state * 1664525 + 1013904223;
        number = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
      }
    }
  }
  AttendPart part(size_t last, size_t slots) const { return {q.data(), k.data(), v.data(), channels, 0, last, slots}; }
};

struct Measure {
  const char* name;
  std::function<Seconds(Side&)> seconds;
};

double rms_of_difference(Side& exact, Side& free) {
  std::vector<float> logits[2];
  Side* sides[] = {&exact, &free};
  for (size_t s = 0; s < 2; ++s) {
    const std::shared_ptr<Context> context = sides[s]->context();
    const auto tokens = tokens_of(prompt_tokens, 1, sides[s]->vocabulary());
    sides[s]->process({&context, 1}, {&tokens, 1}, 0);
    logits[s] = sides[s]->logits(context);
  }
  double mean = 0, deviation = 0, difference = 0;
  const auto count = static_cast<double>(logits[0].size());
  for (const float x : logits[0]) mean += static_cast<double>(x) / count;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    deviation += std::pow(static_cast<double>(logits[0][i]) - mean, 2);
    difference += std::pow(static_cast<double>(logits[0][i]) - static_cast<double>(logits[1][i]), 2);
  }
  return std::sqrt(difference / deviation);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) fail("continuo_exactness GRAPH.json WEIGHTS THREADS ROUNDS");
  std::ifstream file(arguments[1]);
  std::stringstream graph;
  graph << file.rdbuf();
  const auto threads = static_cast<size_t>(std::atoi(arguments[3]));
  const int rounds = std::atoi(arguments[4]);
  const auto chosen = choose_kernels();
  if (!chosen) fail(chosen.error().message);
  const Kernels& exact_table = **chosen;
  const Kernels free_table = free_order(exact_table);
  Side exact(exact_table, graph.str(), arguments[2], threads), free(free_table, graph.str(), arguments[2], threads);
  std::printf("{\"isa\":\"%s\",\"rms\":%.3g}\n", exact_table.name, rms_of_difference(exact, free));

  LoneHead queries(512, 4096 + 512), one(1, 8192);
  const Measure measures[] = {
      {"decode, 1 session",
       [](Side& side) {
         const std::shared_ptr<Context> context = side.context();
         const auto tokens = tokens_of(16, 2, side.vocabulary());
         side.process({&context, 1}, {&tokens, 1}, 0);
         return timed([&] { side.process({&context, 1}, {}, decoded); }).over(decoded);
       }},
      {"prefill of 512",
       [](Side& side) {
         const std::shared_ptr<Context> context = side.context();
         const auto tokens = tokens_of(prompt_tokens, 3, side.vocabulary());
         return timed([&] { side.process({&context, 1}, {&tokens, 1}, 0); }).over(prompt_tokens);
       }},
      {"decode, 16 sessions",
       [](Side& side) {
         std::vector<std::shared_ptr<Context>> contexts;
         std::vector<std::vector<int32_t>> tokens;
         for (size_t s = 0; s < sessions; ++s) {
           contexts.push_back(side.context());
           tokens.push_back(tokens_of(8, s, side.vocabulary()));
         }
         side.process(contexts, tokens, 0);
         return timed([&] { side.process(contexts, {}, together_tokens); }).over(sessions * together_tokens);
       }},
      {"attention of 512 queries to 4,096 positions before them",
       [&queries](Side& side) {
         const AttendRows run{queries.part(4097, 4096 + 512),
                              queries.y.data(),
                              512,
                              1,
                              1,
                              LoneHead::channels,
                              LoneHead::channels,
                              0.125f};
         return timed([&] { side.kernels().attend_rows(run); });
       }},
      {"attention of 1 query to 8,192 positions",
       [&one](Side& side) {
         const AttendRun run{{one.part(8192, 8192)}, 1, one.y.data(), LoneHead::channels, 0.125f};
         return timed([&] {
           for (size_t i = 0; i < 20; ++i) side.kernels().attend(run);
         });
       }},
  };
  std::vector<Seconds> found[std::size(measures)][2];
  for (int round = 0; round <= rounds; ++round) {
    for (size_t m = 0; m < std::size(measures); ++m) {
      // Who is first changes with the round; the first round warms up.
      for (size_t turn = 0; turn < 2; ++turn) {
        const size_t which = (turn + static_cast<size_t>(round)) % 2;
        const Seconds seconds = measures[m].seconds(which == 0 ? exact : free);
        if (round > 0) found[m][which].push_back(seconds);
      }
    }
  }
  for (size_t m = 0; m < std::size(measures); ++m) {
    std::printf("{\"name\":\"%s\"", measures[m].name);
    for (size_t which = 0; which < 2; ++which) {
      std::printf(",\"%s\":[", which == 0 ? "exact" : "free");
      for (size_t i = 0; i < found[m][which].size(); ++i)
        std::printf("%s[%.6g,%.6g]", i == 0 ? "" : ",", found[m][which][i].wall, found[m][which][i].cpu);
      std::printf("]");
    }
    std::printf("}\n");
  }
  return 0;
}
