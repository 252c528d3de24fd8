// Benchmark of a model on a CUDA device: the speed of decoding with 1 and 64 sessions and of reading, and the share of
// the memory bandwidth that decoding reaches (a large copy measures the bandwidth). For comparison it also decodes with
// one launch for every node and no graph.
//
//   continuo_gpu_bench GRAPH.json MODEL.safetensors [ROUNDS]
//
// Prints one JSON object. Rates are medians over the rounds. A round of decoding is a greedy generation of 64 tokens in
// every session.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/executor.h"
#include "runtime/sampling/sampler.h"

namespace {

using namespace continuo;

using Clock = std::chrono::steady_clock;

double seconds_of(const auto& work) {
  const auto started = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - started).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Warms the device up, whose clock rises under load.
void warm(const auto& work) {
  size_t done = 0;
  for (const auto started = Clock::now(); done < 4 || Clock::now() - started < std::chrono::milliseconds(500);)
    work(), ++done;
}

// Bytes read and written per second by copies within the device, each of a fifth of its free memory but at most 4 GiB.
double copy_rate(Device& device, size_t free, size_t rounds) {
  const size_t bytes = std::min<size_t>(free / 5, size_t{4} << 30) / 256 * 256;
  std::byte *a = device.allocate(bytes), *b = device.allocate(bytes);
  std::vector<double> rates;
  const auto copy = [&] { device.copy(b, a, bytes); };
  warm(copy);
  for (size_t i = 0; i < rounds; ++i) rates.push_back(2.0 * static_cast<double>(bytes) / seconds_of(copy));
  device.release(a, bytes);
  device.release(b, bytes);
  return median(rates);
}

// Runs a step with a launch for every node, after an upload of its arguments: without fusion and without a graph.
class Naive final : public cuda::CudaExecutor {
 public:
  using CudaExecutor::CudaExecutor;
  void step(size_t block, size_t rows, std::span<const Run> runs) override {
    wait();
    auto& space = spaces_[block];
    const auto& program = compiled(block);
    begin(space, runs);
    const StepArgs args = args_for(program.schedule, rows, runs);
    for (const auto& line : program.schedule.lines) fill(space, line, program.schedule, args, runs);
    upload(args);
    for (const auto& line : program.schedule.lines) launch(program, line, args.step, 0, rows, runs.size());
    cuda::check(cudaGetLastError(), "launch a step");
    end(space, runs);
  }
};

// Resets contexts that are full.
void make_room(Executor& executor, Context& context, size_t block, size_t rows) {
  std::string reason;
  if (executor.room(context, block, rows, reason) < rows) context.reset();
}

struct Sessions {
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<int32_t> tokens;  // [sessions]: the next token of each
};

class Decoder {
 public:
  Decoder(const std::shared_ptr<const Model>& model, cuda::CudaExecutor& executor, size_t sessions)
      : model_(*model), executor_(executor) {
    for (size_t i = 0; i < sessions; ++i) {
      sessions_.contexts.push_back(std::make_unique<Context>(model));
      sessions_.tokens.push_back(static_cast<int32_t>(i % model_.graph.vocabulary()));
      runs_.push_back({sessions_.contexts.back().get(), i, 1});
    }
  }

  // Decodes one token of every session.
  void token() {
    const auto& language = *model_.graph.language;
    const size_t n = runs_.size(), vocabulary = model_.graph.vocabulary();
    for (const auto& context : sessions_.contexts) make_room(executor_, *context, language.step, 1);
    executor_.insert(language.step, 0, std::as_bytes(std::span(sessions_.tokens)));
    executor_.step(language.step, n, runs_);
    std::vector<const std::byte*> hiddens;
    for (const auto& context : sessions_.contexts) {
      ++context->head.pulse;
      hiddens.push_back(context->data(language.last));
    }
    executor_.gather(language.predict, 0, hiddens);
    executor_.step(language.predict, n, {});
    const auto* logits = reinterpret_cast<const float*>(
        executor_.fetch(language.predict, model_.programs[language.predict].last_value[language.logits], n));
    executor_.pool().parallel_for(n, [&](size_t i) {
      sessions_.tokens[i] = sample(model_.host(), {logits + i * vocabulary, vocabulary}, {0, 0, 1, 0}, 0);
    });
  }

  // Tokens per second of a round, all sessions together.
  double round() {
    constexpr size_t tokens = 64;
    const double took = seconds_of([&] {
      for (size_t t = 0; t < tokens; ++t) token();
    });
    return static_cast<double>(tokens * runs_.size()) / took;
  }

 private:
  const Model& model_;
  cuda::CudaExecutor& executor_;
  Sessions sessions_;
  std::vector<Run> runs_;
};

double prefill_rate(const std::shared_ptr<const Model>& model, cuda::CudaExecutor& executor, size_t rounds) {
  const auto& language = *model->graph.language;
  Context context(model);
  const size_t rows = std::min<size_t>(executor.within_segment(context, language.step, executor.rows_of(language.step)),
                                       model->positions().value_or(UINT64_MAX));
  std::vector<int32_t> tokens(rows);
  for (size_t i = 0; i < rows; ++i) tokens[i] = static_cast<int32_t>((i * 7919) % model->graph.vocabulary());
  const auto step = [&] {
    make_room(executor, context, language.step, rows);
    const Run run{&context, 0, rows};
    executor.insert(language.step, 0, std::as_bytes(std::span(tokens)));
    executor.step(language.step, rows, {&run, 1});
    (void)executor.fetch(language.step, model->programs[language.step].last_value[language.hidden], rows);
    context.head.pulse += rows;
  };
  warm(step);
  std::vector<double> rates;
  for (size_t i = 0; i < rounds; ++i) {
    const double took = seconds_of([&] {
      for (int k = 0; k < 8; ++k) step();
    });
    rates.push_back(8.0 * static_cast<double>(rows) / took);
  }
  return median(rates);
}

std::string read(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int bench(const std::string& graph, std::span<const std::string> weights, size_t rounds) {
  ThreadPool pool(std::max(1u, std::thread::hardware_concurrency()));
  auto opened = open_cuda();
  if (!opened) return std::fprintf(stderr, "%s\n", opened.error().message.c_str()), 1;
  const auto device = std::static_pointer_cast<cuda::CudaDevice>(*opened);
  const CudaStatus status = cuda_status();
  const double copied = copy_rate(*device, status.free, rounds);
  auto loaded = Model::load(graph, weights, pool, device);
  if (!loaded) return std::fprintf(stderr, "%s\n", loaded.error().message.c_str()), 1;
  const auto& model = *loaded;
  if (!model->graph.language) return std::fprintf(stderr, "The graph is no language model.\n"), 1;
  // The least bytes that a token moves: every matrix once, the state once in and once out.
  double matrices = 0, state = 0;
  for (const auto& constant : model->constants)
    matrices += constant.layout == Layout::packed ? static_cast<double>(constant.bytes.size()) : 0;
  state = 2.0 * static_cast<double>(model->state_bytes);

  cuda::CudaExecutor executor(device, model, pool, {});
  Naive naive(device, model, pool, {});
  Decoder single(model, executor, 1), unjoined(model, naive, 1), together(model, executor, 64);
  for (auto* decoder : {&single, &unjoined, &together}) warm([=] { decoder->token(); });
  // The variants take turns, so that a device that slows down affects all of them alike.
  std::vector<double> ones, slows, manys;
  for (size_t i = 0; i < rounds; ++i) {
    ones.push_back(single.round());
    slows.push_back(unjoined.round());
    manys.push_back(together.round());
  }
  const double one = median(ones), slow = median(slows), many = median(manys);
  const double prefill = prefill_rate(model, executor, rounds);
  std::printf(
      "{\"device\":\"%s\",\"capability\":\"%d.%d\",\"driver\":%d,\"runtime\":%d,\"copyBytesPerSecond\":%.4g,"
      "\"bytesPerToken\":%.4g,\"launchesPerStep\":%zu,"
      "\"decode1\":%.4g,\"decode64\":%.4g,\"prefill\":%.4g,\"naive1\":%.4g,\"shareOfCopy\":%.3f,\"overNaive\":%.3f}\n",
      status.name.c_str(), status.major, status.minor, status.driver, status.runtime, copied, matrices + state,
      executor.launches(model->graph.language->step), one, many, prefill, slow, one * (matrices + state) / copied,
      one / slow);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return std::fprintf(stderr, "usage: continuo_gpu_bench GRAPH.json ROUNDS WEIGHTS…\n"), 2;
  try {
    const std::vector<std::string> weights(arguments + 3, arguments + count);
    return bench(read(arguments[1]), weights, std::max(1ul, std::strtoul(arguments[2], nullptr, 10)));
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
