// The host's memory and threads as a device: its executor works on what lies there at once.
#pragma once

#include "base/arena.h"
#include "base/type.h"
#include "runtime/model/device.h"

namespace continuo {

struct Kernels;

// The host as a device, with the kernels that choose_kernels() gives.
Result<std::shared_ptr<Device>> open_cpu();
// The same with these kernels.
std::shared_ptr<Device> cpu_device(const Kernels& kernels);

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const Kernels& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return "cpu"; }
  const HostKernels& host_kernels() const override;
  // All of them: the compiler tells of an op that the executor's switches lack.
  bool runs(Op) const override { return true; }

  std::byte* allocate(size_t bytes) override;
  std::byte* allocate_unwritten(size_t bytes) override;
  bool in_host_memory() const override { return true; }
  void release(std::byte* data, size_t bytes) noexcept override;
  std::byte* allocate_host(size_t bytes) override;
  void release_host(std::byte* data) noexcept override;
  void page_out(std::byte* host, const std::byte* from, size_t bytes) override { copy(host, from, bytes); }
  void page_in(std::byte* to, const std::byte* host, size_t bytes) override { copy(to, host, bytes); }

  void upload(std::byte* to, const std::byte* from, size_t bytes) override { copy(to, from, bytes); }
  void download(std::byte* to, std::span<const Piece> pieces) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void fill(std::byte* to, Type type, size_t n, double value) override;
  bool finite(std::span<const Piece> pieces) override;

  void lay(const ListRows& rows, ThreadPool& pool) override;
  void adopt(Constant&) override {}
  std::unique_ptr<Executor> executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                     const ExecutorOptions& options) override;

 private:
  const Kernels& kernels_;
  Arena arena_;
};

}  // namespace continuo
