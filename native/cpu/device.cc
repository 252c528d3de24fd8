#include <cstring>

#include "../cast.h"
#include "../device.h"
#include "../kernels/cpu/kernels.h"
#include "../memory.h"
#include "executor.h"

namespace continuo {

namespace {

constexpr size_t line = 64;

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }

  std::byte* allocate(size_t bytes) override {
    const size_t rounded = (bytes + line - 1) / line * line;
    auto* data = allocate_aligned(rounded, line);
    std::memset(data, 0, rounded);
    return data;
  }
  void release(std::byte* data, size_t) noexcept override { free_aligned(data); }
  std::byte* allocate_host(size_t bytes) override { return allocate(bytes); }
  void release_host(std::byte* data) noexcept override { free_aligned(data); }
  void page_out(std::byte* host, const std::byte* from, size_t bytes) override { std::memcpy(host, from, bytes); }
  void page_in(std::byte* to, const std::byte* host, size_t bytes) override { std::memcpy(to, host, bytes); }

  void upload(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(std::byte* to, std::span<const Piece> pieces) override {
    for (const auto& [data, bytes] : pieces) {
      std::memcpy(to, data, bytes);
      to += bytes;
    }
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(std::byte* to, Type type, size_t n, double value) override { continuo::fill(to, type, n, value); }
  bool finite(std::span<const Piece> pieces) override {
    for (const auto& [data, bytes] : pieces) {
      if (!kernels_->finite(reinterpret_cast<const float*>(data), bytes / sizeof(float))) return false;
    }
    return true;
  }

  void adopt(Constant&) override {}
  std::unique_ptr<Executor> executor(std::shared_ptr<const Model> model, ThreadPool& pool, const ExecutorOptions& options) override {
    return std::make_unique<CpuExecutor>(std::move(model), pool, options);
  }

 private:
  // Whether numbers are finite has the same answer in every table.
  const Kernels* kernels_ = runnable_kernels().front();
};

}  // namespace

std::shared_ptr<Device> cpu_device() {
  static const auto device = std::make_shared<CpuDevice>();
  return device;
}

}  // namespace continuo
