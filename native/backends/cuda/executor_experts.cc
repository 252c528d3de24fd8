// CudaExecutor: products with the experts of a store. The loop over them is the runtime's
// (runtime/executor/executor_experts.cc): it waits for the routes of the rows, and takes each expert as it comes.
#include <algorithm>

#include "backends/cuda/check.h"
#include "backends/cuda/executor.h"
#include "backends/cuda/expert_buffers.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/translate.h"
#include "experts/form.h"

namespace continuo::cuda {

namespace {

ExpertProducts products_of(const experts::ExpertShape& shape, const std::byte* form) {
  const auto product = [&](size_t which) { return product_of(experts::matrix_of(shape, which, form)); };
  ExpertProducts out;
  out.gate = product(0);
  out.up = product(1);
  out.down = product(2);
  return out;
}

}  // namespace

size_t CudaExecutor::expert_scratch() {
  if (!model_->experts) return 0;
  size_t scratch = 0, floats = 0;
  for (const auto& constant : model_->constants) {
    if (constant.layout != Layout::experts) continue;
    const auto products = products_of(model_->experts->index(constant.layer)->shape, nullptr);
    scratch = std::max(scratch, scratch_bytes(products, max_rows));
    floats = std::max(floats, row_floats(products, max_rows));
  }
  expert_rows_ = DeviceMemory::unwritten(device_, floats * sizeof(float));
  places_ = DeviceMemory::unwritten(device_, most_places * sizeof(uint32_t));
  (void)host_places_.room(most_places * sizeof(uint32_t));
  return scratch;
}

// The lists of one wait lie side by side: the host must not change one that the stream has yet to read.
void CudaExecutor::by_places(std::span<const size_t> places, const auto& work) {
  for (size_t done = 0; done < places.size();) {
    const size_t n = std::min(max_rows, places.size() - done);
    if (listed_ + n > most_places) wait();
    auto* host = reinterpret_cast<uint32_t*>(host_places_.room(most_places * sizeof(uint32_t))) + listed_;
    auto* list = reinterpret_cast<uint32_t*>(places_.data()) + listed_;
    std::copy_n(places.begin() + static_cast<ptrdiff_t>(done), n, host);
    check(cudaMemcpyAsync(list, host, n * sizeof(uint32_t), cudaMemcpyHostToDevice, stream_), "copy to the device");
    pending_ = true;
    listed_ += n;
    done += n;
    work(static_cast<const uint32_t*>(list), static_cast<uint32_t>(n));
  }
  check(cudaGetLastError(), "launch a node");
}

bool CudaExecutor::holds_expert(uint32_t layer, uint32_t expert) { return experts_->holds(layer, expert); }

void CudaExecutor::no_expert(Space& space, const Instruction& instruction, std::span<const size_t> places) {
  const size_t channels = width(space, instruction.in[0].id);
  by_places(places, [&](const uint32_t* list, uint32_t n) {
    lose_places(list, n, channels, floats(space, instruction.out), stream_);
  });
}

void CudaExecutor::multiply_expert(Space& space, const Instruction& instruction, uint32_t expert, experts::Loan loan,
                                   std::span<const size_t> places) {
  const uint32_t layer = model_->constants[instruction.in[2].id].layer;
  auto& store = *model_->experts;
  const auto work = [&](const std::byte* form) {
    auto products = products_of(store.index(layer)->shape, form);
    products.x = floats(space, instruction.in[0].id);
    products.y = floats(space, instruction.out);
    products.chosen = static_cast<uint32_t>(width(space, instruction.in[1].id));
    auto* rows = reinterpret_cast<float*>(expert_rows_.data());
    if (places.size() == 1) {
      cuda::multiply_expert(products, places[0], rows, scratch_.data(), stream_);
      pending_ = true;
      return check(cudaGetLastError(), "launch a node");
    }
    by_places(places, [&](const uint32_t* list, uint32_t n) {
      cuda::multiply_expert(products, list, n, rows, scratch_.data(), stream_);
    });
  };
  if (experts_->use(layer, expert, loan.bytes(), stream_, work)) {
    // Where it was demanded before another executor brought it here, nobody takes it.
    if (loan.bytes().empty()) store.unwant(layer, {&expert, 1});
    return;
  }
  // It was there, and another executor has put an expert in its place.
  auto taken = store.take(layer, {&expert, 1});
  if (!taken) {
    store.unwant(layer, {&expert, 1});
    throw DeviceError(taken.error().message);
  }
  (void)experts_->use(layer, expert, taken->bytes(), stream_, work);
}

}  // namespace continuo::cuda
