// The executor of a CUDA device. A step is a list of launches. The parameters of a launch never change; everything that
// changes from step to step is in the step arguments (backends/cuda/kernels/command.h), which the host writes and
// uploads before the launches. So when a shape of a step (block, rows, runs) comes for the second time, the step is
// captured as a CUDA graph, and later steps of that shape replay the graph.
//
// Some programs need a number that a row has computed to go on: for a branch, or for an index into a table. Those run
// line by line instead, and the host waits where it needs the number. A program with experts of a store runs in
// segments: the host waits for the routes of the rows, and all lines between two such waits are launched at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>

#include "backends/cuda/device.h"
#include "backends/cuda/expert_buffers.h"
#include "backends/cuda/schedule.h"
#include "runtime/executor/executor.h"

namespace continuo::cuda {

// A number or an address as a step argument has it.
template <class T> uint64_t arg(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t out = 0;
  std::memcpy(&out, &value, sizeof value);
  return out;
}

class CudaExecutor : public Executor {
 public:
  CudaExecutor(std::shared_ptr<CudaDevice> device, std::shared_ptr<const Model> model, ThreadPool& pool,
               const ExecutorOptions& options);
  ~CudaExecutor() override;

  void insert(size_t block, size_t input, std::span<const std::byte> rows) override;
  void gather(size_t block, size_t input, std::span<const std::byte* const> rows) override;
  const std::byte* fetch(size_t block, uint32_t value_id, size_t rows) override;
  void surprisals(std::span<const int32_t> expected, size_t first, float* nats) override;
  void step(size_t block, size_t rows, std::span<const Run> runs) override;
  std::vector<Run> pass(size_t block, std::span<const Run> runs, const Idle& idle) override;
  void settle() override { wait(); }
  // Its steps are laid out ahead: nothing notes what they overwrite.
  size_t tentative_rows(size_t) const override { return 0; }

  // Launches of a step with one row of each context.
  size_t launches(size_t block) const { return blocks_[block].schedule.decode.size(); }
  size_t graphs() const { return graphs_.size(); }

 protected:
  struct Compiled {
    Schedule schedule;
    DeviceMemory commands;                      // [schedule.commands]
    std::map<const Instruction*, size_t> line;  // index into schedule.lines
  };
  // The step arguments of the next step.
  struct StepArgs {
    uint64_t* host;  // [args_in(rows, runs, …)], see command.h
    Step step;       // their addresses on the device
    size_t bytes;
  };
  const Compiled& compiled(size_t block) const { return blocks_[block]; }
  void wait();
  // Begins the arguments of a step with its runs; fills in those of one line (executor_args.cc); copies all to the
  // device.
  StepArgs args_for(const Schedule& schedule, size_t rows, std::span<const Run> runs);
  void fill(Space& space, const Line& line, const Schedule& schedule, const StepArgs& args, std::span<const Run> runs);
  void upload(const StepArgs& args);
  void launch(const Compiled& block, const Launch& launch, const Step& step, size_t first, size_t rows, size_t runs);
  // All launches of one line.
  void launch(const Compiled& block, const Line& line, const Step& step, size_t first, size_t rows, size_t runs);

 private:
  // A buffer of page-locked memory on the host ("pinned" in CUDA's documents).
  class Pinned {
   public:
    Pinned() = default;
    explicit Pinned(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    ~Pinned();
    // The buffer, grown to at least so many bytes. Growing loses its content.
    std::byte* room(size_t bytes);
    const std::byte* data() const { return data_; }

    // Whether the stream may still read the buffer.
    bool travels = false;

   private:
    std::shared_ptr<CudaDevice> device_;
    std::byte* data_ = nullptr;
    size_t size_ = 0;
  };

  class Placing;
  using Shape = std::tuple<size_t, size_t, size_t>;  // block, rows, runs

  void zero(Space& space, uint32_t id, size_t rows) override;
  void rows_together(Space& space, const Stage& stage, size_t rows, std::span<const Run> runs) override;
  void dispatch(Space& space, const Instruction& instruction, size_t first, size_t rows,
                std::span<const Run> runs) override;
  bool truth(Space& space, uint32_t id, size_t row) override;
  int32_t number(Space& space, uint32_t id, size_t row) override;
  const std::byte* look_at(Space& space, uint32_t id, size_t first, size_t rows) override;

  // executor_experts.cc
  void multiply_expert(Space& space, const Instruction& instruction, uint32_t expert, experts::Loan loan,
                       std::span<const size_t> places) override;
  void no_expert(Space& space, const Instruction& instruction, std::span<const size_t> places) override;
  bool holds_expert(uint32_t layer, uint32_t expert) override;
  // Takes memory for the products with experts; gives the bytes of `scratch_` that they need.
  size_t expert_scratch();
  // Calls work(places on the device, how many) for pieces of the list that are no longer than the rows of a step.
  void by_places(std::span<const size_t> places, const auto& work);

  // A buffer that the stream does not read any more; and an asynchronous copy from a buffer to the device.
  std::byte* room(Pinned& pinned, size_t bytes);
  void send(std::byte* to, Pinned& from, size_t bytes);
  size_t block_of(const Space& space) const { return static_cast<size_t>(&space - spaces_.data()); }
  const std::byte* to_host(const std::byte* from, size_t bytes);
  // A graph of the launches of a step; null where the device has no memory for a graph.
  cudaGraphExec_t capture(size_t block, const StepArgs& args, size_t rows, std::span<const Run> runs);
  void launch_all(Space& space, const Compiled& block, const StepArgs& args, size_t rows, std::span<const Run> runs);
  void launch_segment(Space& space, const Compiled& block, const Segment& segment, size_t rows,
                      std::span<const Run> runs);
  void replay(size_t block, const StepArgs& args, size_t rows, std::span<const Run> runs);
  void over_rows(const Command& command, std::span<const uint64_t> args, uint32_t threads);
  void note_gates(const Schedule& schedule, std::span<const Line> lines, const StepArgs& args,
                  std::span<const Run> runs);
  GateSums* gate_sums(const Line& line, const Schedule& schedule, const StepArgs& args, std::span<const Run> runs,
                      size_t run, size_t level);
  void forget_graphs();

  std::shared_ptr<CudaDevice> device_;
  // Not shared with other executors: a launch of another executor during a capture would become part of the graph.
  cudaStream_t stream_ = nullptr;
  std::vector<Compiled> blocks_;        // [blocks]
  ngram::Subwords subwords_;            // of memories of subwords
  std::vector<DeviceMemory> literals_;  // numbers of the graph that commands point to, and memory of their own
  DeviceMemory args_;                   // u64 [the most args_in() of a step]
  DeviceMemory notes_;                  // as args_: results of commands at the places of their arguments (gates)
  DeviceMemory scratch_;                // of products
  DeviceMemory routes_;                 // of routed products
  DeviceMemory rows_;                   // arguments of gather() and surprisals() [max_rows], and their command
  DeviceMemory nats_;                   // f32 [max_rows]: results of surprisals()
  // Of experts of a store, null and none where the model has none: the experts; rows on their way, as many as a step
  // may have; and lists of places, u32 [most_places] on the host and on the device, the first `listed_` of them in use.
  std::shared_ptr<ExpertBuffers> experts_;
  DeviceMemory expert_rows_, places_;
  size_t listed_ = 0;
  Pinned host_args_, host_rows_, host_input_, host_output_, host_places_;
  std::map<Shape, cudaGraphExec_t> graphs_;
  std::map<Shape, size_t> seen_;  // steps of each shape that had no graph
  bool pending_ = false;          // the stream has work since the last wait
};

}  // namespace continuo::cuda
