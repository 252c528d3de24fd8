// Products with the experts of a store. Each expert is multiplied once for all rows that go to it, in whatever order
// the experts arrive: no row knows of another, and what an expert gives a row is kept apart from what the others give.
#include <algorithm>
#include <limits>

#include "backends/cpu/executor.h"
#include "backends/cpu/linear.h"
#include "backends/cpu/routes.h"
#include "experts/cache.h"
#include "experts/form.h"

namespace continuo {

namespace {

void grow(Memory& memory, size_t bytes) {
  if (memory.size() < bytes) memory = Memory(bytes);
}

}  // namespace

void CpuExecutor::experts(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& layer = model_->constants[instruction.in[2].id];
  auto& store = *model_->experts;
  const auto& shape = store.index(layer.layer)->shape;
  const size_t channels = shape.channels, inner = shape.inner, chosen = width(space, instruction.in[1].id);
  const float* x = floats(space, instruction.in[0].id) + first * channels;
  float* y = floats(space, instruction.out) + first * chosen * channels;
  const auto* ids = reinterpret_cast<const int32_t*>(value(space, instruction.in[1].id)) + first * chosen;

  const auto [routes, lost] = routes_of({ids, rows * chosen}, layer.members);
  for (const size_t place : lost) std::fill_n(y + place * channels, channels, std::numeric_limits<float>::quiet_NaN());
  std::vector<uint32_t> pending;
  std::vector<const Route*> of_pending;
  size_t most = 1;
  for (const auto& route : routes) {
    pending.push_back(static_cast<uint32_t>(route.matrix));
    of_pending.push_back(&route);
    most = std::max(most, route.places.size());
  }
  store.want(layer.layer, pending, experts::Reason::demand);

  size_t scratch = 0;
  for (size_t which = 0; which < experts::matrices; ++which)
    scratch = std::max(scratch, scratch_bytes(experts::matrix_of(shape, which, nullptr), most));
  grow(scratch_, 2 * scratch);
  grow(gathered_, most * 2 * (channels + inner) * sizeof(float));

  while (!pending.empty()) {
    auto loan = store.take(layer.layer, pending);
    if (!loan) {
      store.unwant(layer.layer, pending);
      throw DeviceError(loan.error().message);
    }
    const size_t at = loan->index;
    const auto& places = of_pending[at]->places;
    const size_t n = places.size();
    auto* in = gathered_.as<float>();
    float *gate = in + most * channels, *up = gate + most * inner, *out = up + most * inner;
    for (size_t r = 0; r < n; ++r) std::copy_n(x + places[r] / chosen * channels, channels, in + r * channels);
    const auto matrix = [&](size_t which) { return experts::matrix_of(shape, which, loan->bytes().data()); };
    const Product inward[] = {{matrix(0), in, gate}, {matrix(1), in, up}};
    multiply(pool_, kernels_, inward, n, scratch_);
    kernels_.silu(gate, gate, n * inner);
    kernels_.mul(gate, up, gate, n * inner);
    const Product outward[] = {{matrix(2), gate, out}};
    multiply(pool_, kernels_, outward, n, scratch_);
    for (size_t r = 0; r < n; ++r) std::copy_n(out + r * channels, channels, y + places[r] * channels);
    pending.erase(pending.begin() + static_cast<ptrdiff_t>(at));
    of_pending.erase(of_pending.begin() + static_cast<ptrdiff_t>(at));
  }
}

// Tells the store which experts rows go to now (0 layers ahead), or are likely to go to. No number comes of it.
void CpuExecutor::experts_ahead(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& layer = model_->constants[instruction.in[1].id];
  const size_t chosen = width(space, instruction.in[0].id);
  const auto* ids = reinterpret_cast<const int32_t*>(value(space, instruction.in[0].id)) + first * chosen;
  const auto ahead = static_cast<unsigned>(instruction.node->number) - 1;
  auto& store = *model_->experts;
  std::vector<uint32_t> named, of_row;
  for (size_t i = 0; i < rows * chosen; ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= layer.members) continue;
    named.push_back(static_cast<uint32_t>(ids[i]));
    of_row.push_back(static_cast<uint32_t>(i / chosen));
  }
  if (ahead == 0) store.routed(layer.layer, named, of_row);
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  if (ahead > 0) store.predicted(layer.layer, ahead, named);
  store.want(layer.layer, named,
             ahead == 0   ? experts::Reason::demand
             : ahead == 1 ? experts::Reason::ahead1
                          : experts::Reason::ahead2);
}

}  // namespace continuo
