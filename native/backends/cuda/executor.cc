#include "backends/cuda/executor.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/check.h"
#include "backends/cuda/fusion.h"
#include "backends/cuda/kernels/kernels.h"

namespace continuo::cuda {

namespace {

// The most graphs that are kept; beyond it all are dropped. Steps have few shapes where sessions come and go slowly.
constexpr size_t most_graphs = 64;

template <class T> DeviceMemory on_device(const std::shared_ptr<CudaDevice>& device, const std::vector<T>& data) {
  DeviceMemory out(device, data.size() * sizeof(T));
  if (out.size() > 0) device->upload(out.data(), reinterpret_cast<const std::byte*>(data.data()), out.size());
  return out;
}

}  // namespace

// Addresses for the commands of one block.
class CudaExecutor::Placing final : public Addresses {
 public:
  Placing(CudaExecutor& executor, Space& space) : executor_(executor), space_(space) {}
  void* value(uint32_t id) override { return executor_.value(space_, id); }
  const void* literal(const void* data, size_t bytes) override {
    DeviceMemory memory(executor_.device_, bytes);
    executor_.device_->upload(memory.data(), static_cast<const std::byte*>(data), bytes);
    return executor_.literals_.emplace_back(std::move(memory)).data();
  }
  void* own(size_t bytes) override {
    return executor_.literals_.emplace_back(DeviceMemory(executor_.device_, bytes * space_.rows)).data();
  }
  const ngram::Subwords* subwords() override {
    return executor_.subwords_.ends.empty() ? nullptr : &executor_.subwords_;
  }
  std::vector<float> numbers(const Constant& constant) override {
    std::vector<float> out(constant.bytes.size() / sizeof(float));
    const Piece all{constant.bytes.data(), constant.bytes.size()};
    executor_.device_->download(reinterpret_cast<std::byte*>(out.data()), {&all, 1});
    return out;
  }

 private:
  CudaExecutor& executor_;
  Space& space_;
};

CudaExecutor::Pinned::~Pinned() {
  if (data_) device_->release_host(data_);
}

std::byte* CudaExecutor::Pinned::room(size_t bytes) {
  if (bytes > size_ || !data_) {
    if (data_) device_->release_host(std::exchange(data_, nullptr));
    size_ = 0;
    data_ = device_->allocate_host(std::max<size_t>(bytes, 64));
    size_ = bytes;
  }
  return data_;
}

CudaExecutor::CudaExecutor(std::shared_ptr<CudaDevice> device, std::shared_ptr<const Model> model, ThreadPool& pool,
                           const ExecutorOptions& options)
    : Executor(std::move(model), pool, options, fused_lifetimes),
      device_(std::move(device)),
      host_args_(device_),
      host_rows_(device_),
      host_input_(device_),
      host_output_(device_),
      host_places_(device_) {
  const auto in_use = device_->use();
  if (options_.vocabulary) subwords_ = ngram::Subwords(*options_.vocabulary, ngram::subwords_in(programs()));
  size_t args = 0, scratch = 0, routes = 0;
  for (auto& space : spaces_) {
    Placing placing(*this, space);
    Compiled block;
    block.schedule = make_schedule(*model_, *space.program, placing);
    auto& schedule = block.schedule;
    block.commands = on_device(device_, schedule.commands);
    for (size_t i = 0; i < schedule.lines.size(); ++i) block.line[schedule.lines[i].instruction] = i;
    args = std::max(args, args_in(space.rows, space.rows, schedule.run_args, schedule.row_args));
    const auto need = [&](const Launch& l) {
      if (l.kind == Launch::Kind::products)
        scratch = std::max(
            scratch, scratch_bytes(schedule.products.data() + l.first, l.count, static_cast<uint32_t>(space.rows)));
    };
    for (const auto& line : schedule.lines) need(line.launch);
    for (const auto& l : schedule.general) need(l);
    static_assert(max_rows * max_chosen <= most_places);
    for (const auto& routed : schedule.routed) {
      scratch = std::max(scratch, scratch_bytes(routed, static_cast<uint32_t>(space.rows)));
      routes = std::max(routes, route_bytes(routed, static_cast<uint32_t>(space.rows)));
    }
    blocks_.push_back(std::move(block));
  }
  args_ = DeviceMemory(device_, args * sizeof(uint64_t));
  notes_ = DeviceMemory(device_, args * sizeof(uint64_t));
  scratch_ = DeviceMemory(device_, std::max(scratch, expert_scratch()));
  routes_ = DeviceMemory(device_, routes);
  rows_ = DeviceMemory(device_, args_in(max_rows, 0, 0, 1) * sizeof(uint64_t) + sizeof(Command));
  nats_ = DeviceMemory(device_, max_rows * sizeof(float));
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  if (model_->experts) experts_ = device_->expert_buffers(model_->experts);
}

CudaExecutor::~CudaExecutor() {
  const Use in_use;
  try {
    wait();
  } catch (const DeviceError&) {
    // The device is lost, and its work with it.
  }
  forget_graphs();
  if (stream_ && !device_->lost()) (void)cudaStreamDestroy(stream_);
}

void CudaExecutor::forget_graphs() {
  // The reset of a lost device has destroyed its graphs.
  for (const auto& [shape, graph] : graphs_) {
    if (!device_->lost()) (void)cudaGraphExecDestroy(graph);
  }
  graphs_.clear();
  seen_.clear();
}

void CudaExecutor::wait() {
  const auto in_use = device_->use();
  if (!pending_) return;
  pending_ = false;
  listed_ = 0;
  for (auto* pinned : {&host_args_, &host_rows_, &host_input_}) pinned->travels = false;
  check(cudaStreamSynchronize(stream_), "finish a step");
}

std::byte* CudaExecutor::room(Pinned& pinned, size_t bytes) {
  if (pinned.travels) wait();
  return pinned.room(bytes);
}

void CudaExecutor::send(std::byte* to, Pinned& from, size_t bytes) {
  check(cudaMemcpyAsync(to, from.data(), bytes, cudaMemcpyHostToDevice, stream_), "copy to the device");
  from.travels = pending_ = true;
}

void CudaExecutor::insert(size_t block, size_t input, std::span<const std::byte> rows) {
  const auto in_use = device_->use();
  std::memcpy(room(host_input_, rows.size()), rows.data(), rows.size());
  send(value(spaces_[block], programs()[block].inputs[input]), host_input_, rows.size());
}

// Runs one command over rows that have one argument each.
void CudaExecutor::over_rows(const Command& command, std::span<const uint64_t> args, uint32_t threads) {
  const auto in_use = device_->use();
  const auto count = static_cast<uint32_t>(args.size());
  const size_t bytes = args_in(count, 0, 0, 1) * sizeof(uint64_t);
  std::byte* staged = room(host_rows_, bytes + sizeof command);
  std::memset(staged, 0, bytes);
  std::memcpy(staged + row_arg_at(count, 0, 0, 0, 0) * sizeof(uint64_t), args.data(), args.size_bytes());
  std::memcpy(staged + bytes, &command, sizeof command);
  send(rows_.data(), host_rows_, bytes + sizeof command);
  cuda::run(reinterpret_cast<const Command*>(rows_.data() + bytes), 1,
            {reinterpret_cast<const uint64_t*>(rows_.data()), nullptr, count, 0, 0}, 0, count, 1, threads, stream_,
            Family::rows);
  check(cudaGetLastError(), "launch a node");
}

void CudaExecutor::gather(size_t block, size_t input, std::span<const std::byte* const> rows) {
  const uint32_t id = programs()[block].inputs[input];
  Command command;
  command.task = Task::gather;
  command.out = value(spaces_[block], id);
  command.width = command.in_width = static_cast<uint32_t>(programs()[block].values[id].bytes);
  std::vector<uint64_t> from;
  for (const auto* row : rows) from.push_back(arg(row));
  over_rows(command, from, 256);
}

const std::byte* CudaExecutor::to_host(const std::byte* from, size_t bytes) {
  const auto in_use = device_->use();
  std::byte* staged = host_output_.room(bytes);
  check(cudaMemcpyAsync(staged, from, bytes, cudaMemcpyDeviceToHost, stream_), "copy from the device");
  pending_ = true;
  wait();
  return staged;
}

const std::byte* CudaExecutor::fetch(size_t block, uint32_t value_id, size_t rows) {
  return to_host(value(spaces_[block], value_id), rows * programs()[block].values[value_id].bytes);
}

const std::byte* CudaExecutor::look_at(Space& space, uint32_t id, size_t first, size_t rows) {
  const size_t bytes = space.program->values[id].bytes;
  return to_host(value(space, id) + first * bytes, rows * bytes);
}

bool CudaExecutor::truth(Space& space, uint32_t id, size_t row) {
  return std::to_integer<uint8_t>(*to_host(value(space, id) + row, 1)) != 0;
}

int32_t CudaExecutor::number(Space& space, uint32_t id, size_t row) {
  int32_t out;
  std::memcpy(&out, to_host(value(space, id) + row * sizeof out, sizeof out), sizeof out);
  return out;
}

void CudaExecutor::surprisals(std::span<const int32_t> expected, size_t first, float* nats) {
  const auto& language = *model_->graph.language;
  Command command;
  command.task = Task::surprisal;
  command.width = command.in_width = static_cast<uint32_t>(model_->graph.vocabulary());
  command.in[0] = address(language.predict, programs()[language.predict].last_value[language.logits]) +
                  first * model_->graph.vocabulary() * sizeof(float);
  command.out = nats_.data();
  std::vector<uint64_t> tokens;
  for (const int32_t token : expected) tokens.push_back(arg(token));
  over_rows(command, tokens, 512);
  std::memcpy(nats, to_host(nats_.data(), expected.size() * sizeof(float)), expected.size() * sizeof(float));
}

void CudaExecutor::zero(Space& space, uint32_t id, size_t rows) {
  check(cudaMemsetAsync(value(space, id), 0, space.program->values[id].bytes * rows, stream_), "clear memory");
  pending_ = true;
}

void CudaExecutor::step(size_t block, size_t rows, std::span<const Run> runs) {
  const auto in_use = device_->use();
  // The contexts' lists may still be on their way.
  device_->follow_transfers(stream_);
  // The step before must be finished, because begin() may move a table that grows.
  if (host_args_.travels) wait();
  auto& space = spaces_[block];
  const auto& compiled = blocks_[block];
  if (!compiled.schedule.straight || options_.trace || options_.watch) return Executor::step(block, rows, runs);
  begin(space, runs);
  const StepArgs args = args_for(compiled.schedule, rows, runs);
  for (const auto& line : compiled.schedule.lines) fill(space, line, compiled.schedule, args, runs);
  replay(block, args, rows, runs);
  note_gates(compiled.schedule, compiled.schedule.lines, args, runs);
  end(space, runs);
}

std::vector<Run> CudaExecutor::pass(size_t block, std::span<const Run> runs, const Idle& idle) {
  const auto in_use = device_->use();
  device_->follow_transfers(stream_);
  wait();
  return Executor::pass(block, runs, idle);
}

void CudaExecutor::upload(const StepArgs& args) { send(args_.data(), host_args_, args.bytes); }

void CudaExecutor::launch(const Compiled& block, const Launch& launch, const Step& step, size_t first, size_t rows,
                          size_t runs) {
  const auto from = static_cast<uint32_t>(first), count = static_cast<uint32_t>(rows);
  switch (launch.kind) {
    case Launch::Kind::products:
      cuda::multiply(block.schedule.products.data() + launch.first, launch.count, from, count, scratch_.data(),
                     stream_);
      break;
    case Launch::Kind::routes:
      cuda::route(block.schedule.routed[launch.first], from, count, routes_.data(), stream_);
      break;
    case Launch::Kind::routed:
      cuda::multiply_routed(block.schedule.routed[launch.first], from, count, routes_.data(), scratch_.data(), stream_);
      break;
    case Launch::Kind::commands: {
      const auto* commands = reinterpret_cast<const Command*>(block.commands.data()) + launch.first;
      cuda::run(commands, launch.count, step, launch.walks ? 0 : from,
                launch.walks ? static_cast<uint32_t>(runs) : count, launch.parts, launch.threads, stream_,
                launch.family);
    }
  }
  pending_ = true;
}

void CudaExecutor::launch(const Compiled& block, const Line& line, const Step& step, size_t first, size_t rows,
                          size_t runs) {
  if (line.launch.kind == Launch::Kind::routed)
    launch(block, Launch{Launch::Kind::routes, line.launch.first, 1}, step, first, rows, runs);
  launch(block, line.launch, step, first, rows, runs);
  if (line.gates >= 0) launch(block, gates_launch(block.schedule.commands, line.gates), step, first, rows, runs);
}

void CudaExecutor::launch_all(Space& space, const Compiled& block, const StepArgs& args, size_t rows,
                              std::span<const Run> runs) {
  upload(args);
  for (uint32_t id = 0; id < space.program->values.size(); ++id) {
    if (space.program->values[id].reset) zero(space, id, rows);
  }
  const bool single = rows == runs.size();
  for (const auto& l : single ? block.schedule.decode : block.schedule.general)
    launch(block, l, args.step, 0, rows, runs.size());
}

cudaGraphExec_t CudaExecutor::capture(size_t block, const StepArgs& args, size_t rows, std::span<const Run> runs) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture a step");
  try {
    launch_all(spaces_[block], blocks_[block], args, rows, runs);
    // A launch that failed would be missing from the graph without a further error.
    check(cudaGetLastError(), "capture a step");
  } catch (const DeviceError&) {
    // The capture must end: a stream that still captures refuses every other use.
    (void)cudaStreamEndCapture(stream_, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), "capture a step");
  cudaGraphExec_t exec = nullptr;
  cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  // The upload takes the graph's memory on the device now, where a failure can be handled, and not at the first launch.
  if (error == cudaSuccess) error = cudaGraphUpload(exec, stream_);
  if (error != cudaSuccess && exec) (void)cudaGraphExecDestroy(exec);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(error, "make a graph of a step");
  return exec;
}

// The first step of a shape is launched, the second is captured: most shapes of a stream's beginning never come again.
void CudaExecutor::replay(size_t block, const StepArgs& args, size_t rows, std::span<const Run> runs) {
  const Shape shape{block, rows, runs.size()};
  auto found = graphs_.find(shape);
  if (found == graphs_.end() && seen_[shape]++ > 0) {
    if (graphs_.size() == most_graphs) forget_graphs();
    if (const auto graph = capture(block, args, rows, runs)) found = graphs_.emplace(shape, graph).first;
  }
  if (found == graphs_.end()) {
    launch_all(spaces_[block], blocks_[block], args, rows, runs);
    check(cudaGetLastError(), "launch a step");
  } else {
    check(cudaGraphLaunch(found->second, stream_), "launch a step");
    host_args_.travels = true;
  }
  pending_ = true;
}

// Runs segment by segment, with the first stage of each; line by line with trace or watch, and where a program has no
// segments. What rows are in a step may change between two segments, and not within one.
void CudaExecutor::rows_together(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) {
  const auto& block = blocks_[block_of(space)];
  if (!block.schedule.segments.empty() && !options_.trace && !options_.watch) {
    for (const auto& segment : block.schedule.segments) {
      if (stage.first == segment.first_line) return launch_segment(space, block, segment, rows, runs);
      if (stage.first > segment.first_line && stage.first <= segment.last_line) return;
    }
  }
  for (size_t line = stage.first; line <= stage.last; ++line) run(space, space.program->code[line], 0, rows, runs);
}

void CudaExecutor::launch_segment(Space& space, const Compiled& block, const Segment& segment, size_t rows,
                                  std::span<const Run> runs) {
  const auto& schedule = block.schedule;
  const auto lines = std::span(schedule.lines).subspan(segment.lines, segment.lines_end - segment.lines);
  const StepArgs args = args_for(schedule, rows, runs);
  for (const auto& line : lines) fill(space, line, schedule, args, runs);
  upload(args);
  const bool single = rows == runs.size();
  const auto launches =
      single ? std::span(schedule.decode).subspan(segment.decode, segment.decode_end - segment.decode)
             : std::span(schedule.general).subspan(segment.general, segment.general_end - segment.general);
  for (const auto& l : launches) launch(block, l, args.step, 0, rows, runs.size());
  check(cudaGetLastError(), "launch a part of a step");
  note_gates(schedule, lines, args, runs);
}

void CudaExecutor::dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows,
                            std::span<const Run> runs) {
  // The line before must be finished: its arguments are overwritten, and the host may move counters or clear tables.
  wait();
  switch (instruction.node->op) {
    case Op::cache_increment:
    case Op::cache_decrement: return move_counter(space, instruction, runs);
    case Op::cache_reset: return Executor::reset(space, instruction, runs);
    case Op::experts: return experts(space, instruction, first, rows);
    case Op::experts_ahead: return experts_ahead(space, instruction, first, rows);
    default: break;
  }
  const auto& block = blocks_[block_of(space)];
  const Line& line = block.schedule.lines[block.line.at(&instruction)];
  const StepArgs args = args_for(block.schedule, first + rows, runs);
  fill(space, line, block.schedule, args, runs);
  upload(args);
  launch(block, line, args.step, first, rows, runs.size());
  check(cudaGetLastError(), "launch a node");
  note_gates(block.schedule, {&line, 1}, args, runs);
}

}  // namespace continuo::cuda
