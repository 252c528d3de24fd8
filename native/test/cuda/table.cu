// The table, and its entries for ops on rows: norms, elementwise functions, rope, conv, and the functions of logits.
#include <limits>

#include "backends/cuda/kernels/conv.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/rope.h"
#include "backends/cuda/kernels/routing.h"
#include "backends/cuda/kernels/sample.h"
#include "backends/cuda/kernels/torus.h"
#include "test/cuda/staged.h"
#include "test/cuda/table.h"

namespace continuo::test {

unsigned int next_threads() {
  constexpr unsigned int sizes[] = {64, 256, 32, 96, 1024, 128, 160, 512};
  static unsigned int calls = 0;
  return sizes[calls++ % 8];
}

namespace {

using cuda::launch;

struct Between {
  CONTINUO_INLINE float operator()(float a, float b, float t) const { return cuda::lerp(a, b, t); }
};
struct Factor {
  float factor;
  CONTINUO_INLINE float operator()(float x) const { return x * factor; }
};
struct Scaled {
  float factor;
  CONTINUO_INLINE float operator()(float x, float y) const { return cuda::fma(factor, x, y); }
};
struct Range {
  float low, span;
  CONTINUO_INLINE float operator()(float x) const { return cuda::fma(span, cuda::sigmoid(x), low); }
};
struct Clamp {
  float low, high;
  CONTINUO_INLINE float operator()(float x) const { return cuda::clamp(x, low, high); }
};
#define CONTINUO_UNARY(name, cost)                                            \
  struct Unary_##name {                                                       \
    CONTINUO_INLINE float operator()(float x) const { return cuda::name(x); } \
  };
#define CONTINUO_BINARY(name, cost)                                                       \
  struct Binary_##name {                                                                  \
    CONTINUO_INLINE float operator()(float a, float b) const { return cuda::name(a, b); } \
  };
CONTINUO_UNARY_OPS(CONTINUO_UNARY)
CONTINUO_UNARY(log, 12)
CONTINUO_BINARY_OPS(CONTINUO_BINARY)
#undef CONTINUO_UNARY
#undef CONTINUO_BINARY

template <class F> __global__ void __launch_bounds__(1024) map_one(size_t n, float* out, F f, const float* a) {
  cuda::map(n, out, f, a);
}
template <class F> __global__ void __launch_bounds__(1024)
    map_two(size_t n, float* out, F f, const float* a, const float* b) {
  cuda::map(n, out, f, a, b);
}
template <class F> __global__ void __launch_bounds__(1024)
    map_three(size_t n, float* out, F f, const float* a, const float* b, const float* c) {
  cuda::map(n, out, f, a, b, c);
}

template <class F> void unary(const float* a, float* out, size_t n) {
  Staged staged;
  launch(map_one<F>, 1, next_threads(), nullptr, n, staged.out(out, n), F{}, staged.in(a, n));
}
template <class F> void binary(const float* a, const float* b, float* out, size_t n) {
  Staged staged;
  launch(map_two<F>, 1, next_threads(), nullptr, n, staged.out(out, n), F{}, staged.in(a, n), staged.in(b, n));
}
void lerp(const float* a, const float* b, const float* t, float* out, size_t n) {
  Staged staged;
  launch(map_three<Between>, 1, next_threads(), nullptr, n, staged.out(out, n), Between{}, staged.in(a, n),
         staged.in(b, n), staged.in(t, n));
}
void range(const float* a, float low, float high, float* out, size_t n) {
  Staged staged;
  launch(map_one<Range>, 1, next_threads(), nullptr, n, staged.out(out, n), Range{low, high - low}, staged.in(a, n));
}

void clamp(const float* a, float low, float high, float* out, size_t n) {
  Staged staged;
  launch(map_one<Clamp>, 1, next_threads(), nullptr, n, staged.out(out, n), Clamp{low, high}, staged.in(a, n));
}
void scale(const float* a, float factor, float* out, size_t n) {
  Staged staged;
  launch(map_one<Factor>, 1, next_threads(), nullptr, n, staged.out(out, n), Factor{factor}, staged.in(a, n));
}

// Launches a block for each row and each part of its groups.
struct Rows {
  size_t width, groups;
};
CONTINUO_INLINE size_t row_of(const Rows& rows) { return blockIdx.x * rows.width; }
CONTINUO_INLINE size_t group_of(const Rows& rows) { return rows.groups * blockIdx.y / gridDim.y; }
CONTINUO_INLINE size_t group_end_of(const Rows& rows) { return rows.groups * (blockIdx.y + 1) / gridDim.y; }

__global__ void __launch_bounds__(1024)
    norm_kernel(const float* x, const float* weight, const float* bias, float* y, Rows rows, float eps) {
  const size_t at = row_of(rows);
  cuda::norm(x + at, weight, bias, y + at, rows.width / rows.groups, group_of(rows), group_end_of(rows), eps);
}
__global__ void __launch_bounds__(1024) l2norm_kernel(const float* x, float* y, Rows rows, float floor) {
  const size_t at = row_of(rows);
  cuda::l2norm(x + at, y + at, rows.width / rows.groups, group_of(rows), group_end_of(rows), floor);
}
__global__ void __launch_bounds__(1024)
    rmsnorm_kernel(const float* x, const float* weight, float* y, Rows rows, float eps) {
  const size_t at = row_of(rows);
  cuda::rmsnorm(x + at, weight, y + at, rows.width / rows.groups, group_of(rows), group_end_of(rows), eps);
}
__global__ void __launch_bounds__(1024) unit_kernel(const float* x, float* y, Rows rows, float eps) {
  const size_t at = row_of(rows);
  cuda::unit(x + at, y + at, rows.width / rows.groups, group_of(rows), group_end_of(rows), eps);
}
__global__ void __launch_bounds__(1024) bonus_kernel(const float* y, const float* r, const float* k, const float* u,
                                                     const float* v, float* out, Rows rows) {
  const size_t at = row_of(rows);
  cuda::bonus(y + at, r + at, k + at, u, v + at, out + at, rows.width / rows.groups, group_of(rows),
              group_end_of(rows));
}

dim3 grid_of(size_t rows, size_t groups) {
  return dim3(static_cast<unsigned int>(rows), static_cast<unsigned int>(1 + rows % groups));
}

void norm(const float* x, const float* weight, const float* bias, float* y, size_t rows, size_t width, size_t groups,
          float eps) {
  if (rows == 0) return;
  Staged staged;
  const size_t n = rows * width;
  launch(norm_kernel, grid_of(rows, groups), next_threads(), nullptr, staged.in(x, n), staged.in(weight, width),
         staged.in(bias, width), staged.out(y, n), Rows{width, groups}, eps);
}
void l2norm(const float* x, float* y, size_t rows, size_t width, size_t groups, float floor) {
  if (rows == 0) return;
  Staged staged;
  launch(l2norm_kernel, grid_of(rows, groups), next_threads(), nullptr, staged.in(x, rows * width),
         staged.out(y, rows * width), Rows{width, groups}, floor);
}
void rmsnorm(const float* x, const float* weight, float* y, size_t rows, size_t width, size_t groups, float eps) {
  if (rows == 0) return;
  Staged staged;
  launch(rmsnorm_kernel, grid_of(rows, groups), next_threads(), nullptr, staged.in(x, rows * width),
         staged.in(weight, width), staged.out(y, rows * width), Rows{width, groups}, eps);
}
void unit(const float* x, float* y, size_t rows, size_t width, size_t groups, float eps) {
  if (rows == 0) return;
  Staged staged;
  launch(unit_kernel, grid_of(rows, groups), next_threads(), nullptr, staged.in(x, rows * width),
         staged.out(y, rows * width), Rows{width, groups}, eps);
}
void bonus(const float* y, const float* r, const float* k, const float* u, const float* v, float* out, size_t rows,
           size_t width, size_t groups) {
  if (rows == 0) return;
  Staged staged;
  const size_t n = rows * width;
  launch(bonus_kernel, grid_of(rows, groups), next_threads(), nullptr, staged.in(y, n), staged.in(r, n),
         staged.in(k, n), staged.in(u, width), staged.in(v, n), staged.out(out, n), Rows{width, groups});
}

__global__ void __launch_bounds__(1024) max_kernel(const float* a, size_t n, float* out) {
  const float value = cuda::max(a, n);
  // Every thread has the result; each call takes that of another thread.
  if (threadIdx.x == n % blockDim.x) *out = value;
}
__global__ void __launch_bounds__(1024) sum_exp_kernel(const float* a, float shift, size_t n, float* out) {
  const float value = cuda::sum_exp(a, shift, n);
  if (threadIdx.x == n % blockDim.x) *out = value;
}

float max(const float* a, size_t n) {
  float value = 0;
  {
    Staged staged;
    launch(max_kernel, 1, next_threads(), nullptr, staged.in(a, n), n, staged.out(&value, 1));
  }
  return value;
}
float sum_exp(const float* a, float shift, size_t n) {
  float value = 0;
  {
    Staged staged;
    launch(sum_exp_kernel, 1, next_threads(), nullptr, staged.in(a, n), shift, n, staged.out(&value, 1));
  }
  return value;
}
bool finite(const float* a, size_t n) {
  uint32_t strange = 0;
  {
    Staged staged;
    cuda::finite(staged.in(a, n), n, staged.both(&strange, 1), nullptr);
  }
  return strange == 0;
}

__global__ void __launch_bounds__(1024) rope_kernel(const float* x, float* y, size_t heads, size_t channels,
                                                    size_t pairs, const uint32_t* increments, uint32_t position) {
  cuda::rope(x, y, heads * blockIdx.x / gridDim.x, heads * (blockIdx.x + 1) / gridDim.x, channels, pairs, increments,
             position);
}
void rope(const float* x, float* y, size_t heads, size_t channels, size_t pairs, const uint32_t* increments,
          uint32_t position) {
  Staged staged;
  const size_t n = heads * channels;
  launch(rope_kernel, static_cast<unsigned int>(1 + pairs % heads), next_threads(), nullptr, staged.in(x, n),
         staged.out(y, n), heads, channels, pairs, staged.in(increments, pairs), position);
}

__global__ void __launch_bounds__(1024) conv_kernel(ConvRun run, size_t channel, size_t channel_end) {
  cuda::conv(run, channel, channel_end);
}
void conv(const ConvRun& run, size_t channel, size_t channel_end) {
  if (run.rows == 0 || channel == channel_end) return;
  Staged staged;
  ConvRun job = run;
  job.x = staged.in(run.x, run.rows * run.channels);
  job.tail = staged.in(run.tail, (run.taps - 1) * run.channels);
  job.weights = staged.in(run.weights, run.channels * run.taps);
  if (run.bias) job.bias = staged.in(run.bias, run.channels);
  job.y = staged.both(run.y, run.rows * run.channels);
  launch(conv_kernel, 1, next_threads(), nullptr, job, channel, channel_end);
}

__global__ void __launch_bounds__(1024) softmax_kernel(const float* x, float* y, size_t n) {
  cuda::softmax_row(x + blockIdx.x * n, y + blockIdx.x * n, n);
}
__global__ void __launch_bounds__(1024) normalise_kernel(const float* x, float* y, size_t n) {
  cuda::normalise(x + blockIdx.x * n, y + blockIdx.x * n, n);
}
void softmax_rows(const float* x, float* y, size_t rows, size_t n) {
  if (rows == 0) return;
  Staged staged;
  launch(softmax_kernel, static_cast<unsigned int>(rows), next_threads(), nullptr, staged.in(x, rows * n),
         staged.out(y, rows * n), n);
}
void normalise(const float* x, float* y, size_t rows, size_t n) {
  if (rows == 0) return;
  Staged staged;
  launch(normalise_kernel, static_cast<unsigned int>(rows), next_threads(), nullptr, staged.in(x, rows * n),
         staged.out(y, rows * n), n);
}

__global__ void __launch_bounds__(1024)
    combine_kernel(const float* x, const float* w, float* y, size_t count, size_t n) {
  cuda::combine(x, w, y, count, n, n * blockIdx.x / gridDim.x, n * (blockIdx.x + 1) / gridDim.x);
}
void combine(const float* x, const float* w, float* y, size_t count, size_t n) {
  Staged staged;
  launch(combine_kernel, static_cast<unsigned int>(1 + n % 3), next_threads(), nullptr, staged.in(x, count * n),
         staged.in(w, count), staged.out(y, n), count, n);
}

void axpy(float factor, const float* x, float* y, size_t n) {
  Staged staged;
  float* const out = staged.both(y, n);
  launch(map_two<Scaled>, 1, next_threads(), nullptr, n, out, Scaled{factor}, staged.in(x, n),
         static_cast<const float*>(out));
}

__global__ void __launch_bounds__(1024)
    torus_kernel(const float* z, const float* positions, const float* offsets, float* d, size_t n) {
  cuda::torus(z, positions, offsets, d, n * blockIdx.x / gridDim.x, n * (blockIdx.x + 1) / gridDim.x);
}
void torus(const float* z, const float* positions, const float* offsets, float* d, size_t n) {
  Staged staged;
  launch(torus_kernel, static_cast<unsigned int>(1 + n % 3), next_threads(), nullptr, staged.in(z, 2),
         staged.in(positions, 2 * n), staged.in(offsets, 2 * n), staged.out(d, n), n);
}

__global__ void __launch_bounds__(1024) whole_kernel(const float* x, int8_t* out, size_t n) { cuda::whole(x, out, n); }
void whole(const float* x, int8_t* out, size_t n) {
  Staged staged;
  launch(whole_kernel, 1, next_threads(), nullptr, staged.in(x, n), staged.out(out, n), n);
}

}  // namespace

// What only the host's external memory computes has no kernel of this table: dot and attend_shares, and rerotate_kv,
// whose rows cuda::lay lays. Nor have the three steps of a split, by which threads of the host share a history.
const Kernels cuda_kernels{{"cuda", unary<Unary_exp>, unary<Unary_log>, max, sum_exp, finite, staged::softmax, nullptr,
                            unary<Unary_silu>, unary<Unary_gelu>, norm, unit, rope},
                           staged::matmul,
                           staged::quantise,
                           staged::matmul_quantised,
                           staged::wkv7,
                           staged::ssm,
                           l2norm,
                           bonus,
#define CONTINUO_UNARY_ENTRY(name, cost) unary<Unary_##name>,
#define CONTINUO_BINARY_ENTRY(name, cost) binary<Binary_##name>,
                           CONTINUO_UNARY_OPS(CONTINUO_UNARY_ENTRY) CONTINUO_BINARY_OPS(CONTINUO_BINARY_ENTRY) lerp,
                           staged::attend,
                           nullptr,
                           staged::attend_rows,
                           nullptr,
                           nullptr,
                           nullptr,
                           rmsnorm,
                           range,
                           clamp,
                           conv,
                           staged::memory,
                           staged::mix,
                           staged::recall,
                           staged::memory_first,
                           scale,
                           softmax_rows,
                           normalise,
                           combine,
                           nullptr,
                           staged::pdr,
                           staged::ngram,
                           staged::ngram_first,
                           staged::recall_keys,
                           torus,
                           axpy,
                           whole};

}  // namespace continuo::test
