// The executor of a CUDA device. A step is a list of launches whose arguments never change; what does, lies in the
// step's args (backends/cuda/kernels/command.h), which are written by the host and uploaded first. So a step of a
// shape that comes again, this many rows of this many runs, is captured as a CUDA graph the second time, and from then
// on replayed.
//
// A program that must ask what a row has computed (a branch, a place in a table) goes line by line instead, and waits
// where it asks.
#pragma once

#include <map>
#include <tuple>

#include "backends/cuda/device.h"
#include "backends/cuda/schedule.h"
#include "runtime/executor.h"

namespace continuo::cuda {

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
  void settle() override { wait(); }

  // Launches of a step that takes one row of each of its contexts.
  size_t launches(size_t block) const { return blocks_[block].schedule.decode.size(); }
  size_t graphs() const { return graphs_.size(); }

 protected:
  struct Compiled {
    Schedule schedule;
    DeviceMemory commands;
    std::map<const Instruction*, size_t> line;  // into schedule.lines
  };
  // Arguments of the step that is about to run: on the host, and where they will lie on the device.
  struct StepArgs {
    uint64_t* host;
    Step step;
    size_t bytes;
  };
  const Compiled& compiled(size_t block) const { return blocks_[block]; }
  void wait();
  // The arguments of a step with nothing but its runs in them, what each line adds to them, and the way to the device.
  StepArgs args_for(const Schedule& schedule, size_t rows, std::span<const Run> runs);
  void fill(Space& space, const Line& line, const Schedule& schedule, const StepArgs& args, std::span<const Run> runs);
  void upload(const StepArgs& args);
  void launch(const Compiled& block, const Launch& launch, const Step& step, size_t first, size_t rows, size_t runs);

 private:
  // Pinned memory of the host.
  class Pinned {
   public:
    Pinned() = default;
    explicit Pinned(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    ~Pinned();
    // At least so many bytes; what lay there is lost where it must grow.
    std::byte* room(size_t bytes);
    const std::byte* data() const { return data_; }

    // The stream may still read it.
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

  // Room that the stream is done with, and the way from there to the device.
  std::byte* room(Pinned& pinned, size_t bytes);
  void send(std::byte* to, Pinned& from, size_t bytes);
  size_t block_of(const Space& space) const { return static_cast<size_t>(&space - spaces_.data()); }
  const std::byte* to_host(const std::byte* from, size_t bytes);
  // A graph of the launches of a step, or null where the device has no memory for one.
  cudaGraphExec_t capture(size_t block, const StepArgs& args, size_t rows, std::span<const Run> runs);
  void launch_all(Space& space, const Compiled& block, const StepArgs& args, size_t rows, std::span<const Run> runs);
  void replay(size_t block, const StepArgs& args, size_t rows, std::span<const Run> runs);
  void over_rows(const Command& command, std::span<const uint64_t> args, uint32_t threads);
  void note_gates(const Schedule& schedule, std::span<const Line> lines, const StepArgs& args,
                  std::span<const Run> runs);
  GateSums* gate_sums(const Line& line, const Schedule& schedule, const StepArgs& args, std::span<const Run> runs,
                      size_t run, size_t level);
  void forget_graphs();

  std::shared_ptr<CudaDevice> device_;
  // Its own: what another executor puts into a stream that is being captured would become part of the graph.
  cudaStream_t stream_ = nullptr;
  std::vector<Compiled> blocks_;
  std::vector<DeviceMemory> literals_;
  DeviceMemory args_, notes_, scratch_;
  DeviceMemory rows_;  // arguments of gather() and surprisals(), and their command
  DeviceMemory nats_;  // what surprisals() gives
  Pinned host_args_, host_rows_, host_input_, host_output_;
  std::map<Shape, cudaGraphExec_t> graphs_;
  std::map<Shape, size_t> seen_;
  bool pending_ = false;  // something was put into the stream since the last wait
};

}  // namespace continuo::cuda
