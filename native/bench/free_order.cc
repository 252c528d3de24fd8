#include "bench/free_order.h"

#define CONTINUO_ISA free_order_lanes
#include "backends/cpu/kernels/attend_rows.h"
#include "backends/cpu/kernels/matmul.h"

namespace continuo {
namespace CONTINUO_ISA {
namespace {

// 2^f by its Taylor polynomial, within 3·10⁻⁶, and one scaling; nothing is said of infinities and NaN.
CONTINUO_INLINE Vec quick_exp(Vec x) {
  const Vec t = x * 1.44269504f;
#if defined(__AVX512F__)
  const Vec n = (Vec)_mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Vec n = to_float(to_int(t + (t < 0.0f ? splat<Vec>(-0.5f) : splat<Vec>(0.5f))));
#endif
  const Vec f = t - n;
  Vec p = fma(splat<Vec>(0.00133336f), f, splat<Vec>(0.00961813f));
  p = fma(p, f, splat<Vec>(0.05550411f));
  p = fma(p, f, splat<Vec>(0.24022651f));
  p = fma(p, f, splat<Vec>(0.69314718f));
  p = fma(p, f, splat<Vec>(1.0f));
#if defined(__AVX512F__)
  return (Vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  const Vec low = n < -126.0f ? splat<Vec>(-126.0f) : n;
  return p * cast<Vec>((to_int(low) + 127) << 23);
#endif
}

// Calls use(vector, at) for whole vectors of n numbers, and for the rest with zeros behind it; stores what it returns.
template <class Use> CONTINUO_INLINE void quick_map(const float* a, float* out, size_t n, const Use& use) {
  size_t i = 0;
  for (; i + width <= n; i += width) store(out + i, use(load<Vec>(a + i)));
  if (i == n) return;
  float rest[width] = {};
  __builtin_memcpy(rest, a + i, (n - i) * sizeof(float));
  store(rest, use(load<Vec>(rest)));
  __builtin_memcpy(out + i, rest, (n - i) * sizeof(float));
}

void quick_exps(const float* a, float* out, size_t n) { quick_map(a, out, n, quick_exp); }

void quick_silu(const float* a, float* out, size_t n) {
  quick_map(a, out, n, [](Vec x) { return x / (1.0f + quick_exp(-x)); });
}

float quick_max(const float* a, size_t n) {
  float most = a[0];
  for (size_t i = 1; i < n; ++i) most = a[i] > most ? a[i] : most;
  return most;
}

float quick_sum_exp(const float* a, float shift, size_t n) {
  Vec sums[2] = {};
  size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    sums[0] += quick_exp(load<Vec>(a + i) - shift);
    sums[1] += quick_exp(load<Vec>(a + i + width) - shift);
  }
  float total = 0.0f;
  const Vec both = sums[0] + sums[1];
  for (size_t lane = 0; lane < width; ++lane) total += both[lane];
  for (; i < n; ++i) total += quick_exp(splat<Vec>(a[i] - shift))[0];
  return total;
}

float quick_dot(const float* a, const float* b, size_t n) {
  float sum = 0.0f;
  for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void quick_rmsnorm(const float* x, const float* weight, float* y, size_t rows, size_t width_of_row, size_t groups,
                   float eps) {
  const size_t channels = width_of_row / groups;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = r * width_of_row + g * channels;
      const float factor = 1.0f / sqrt(quick_dot(x + at, x + at, channels) / static_cast<float>(channels) + eps);
      for (size_t i = 0; i < channels; ++i) y[at + i] = x[at + i] * factor * weight[g * channels + i];
    }
  }
}

// Few rows of one tile: all sums over all inputs in registers, in `Sets` of them by k.
template <size_t Rows, size_t Sets, class Stored>
CONTINUO_INLINE void whole_tile(const Stored* w, size_t inputs, const float* x, float* y, size_t stride, size_t lanes) {
  for (size_t lane = 0; lane < least(tile_lanes, lanes); lane += panel_lanes) {
    Vec acc[Sets][Rows][panel_vectors] = {};
    size_t k = 0;
    const auto term = [&](size_t set, size_t at) CONTINUO_LAMBDA {
      Vec weights[panel_vectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < panel_vectors; ++v) weights[v] = load_weights(w + at * tile_lanes + lane + v * width);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Vec value = splat<Vec>(x[r * inputs + at]);
#pragma GCC unroll 16
        for (size_t v = 0; v < panel_vectors; ++v) acc[set][r][v] = fma(weights[v], value, acc[set][r][v]);
      }
    };
    for (; k + Sets <= inputs; k += Sets) {
#pragma GCC unroll 4
      for (size_t set = 0; set < Sets; ++set) term(set, k + set);
    }
    for (; k < inputs; ++k) term(0, k);
#pragma GCC unroll 4
    for (size_t set = 1; set < Sets; ++set) {
      for (size_t r = 0; r < Rows; ++r) {
        for (size_t v = 0; v < panel_vectors; ++v) acc[0][r][v] += acc[set][r][v];
      }
    }
    add_sums(acc[0], {y + lane, stride, lanes - lane, true});
  }
}

constexpr size_t free_terms = 512;

template <class Stored>
void many_rows_free(const PackedMatrix& m, const float* x, float* y, size_t rows, size_t tile_begin, size_t tile_end) {
  constexpr size_t lines = (tile_lanes * sizeof(Stored) + 127) / 128;
  const auto chunk = [&](size_t tile, size_t block) {
    return static_cast<const Stored*>(m.data) + (tile * m.inputs + block) * tile_lanes;
  };
  alignas(64) static thread_local float together[pass_rows * free_terms];
  for (size_t block = 0; block < m.inputs; block += free_terms) {
    const size_t terms = least(free_terms, m.inputs - block);
    for (size_t r = 0; r < rows; ++r)
      __builtin_memcpy(together + r * free_terms, x + r * m.inputs + block, terms * sizeof(float));
    for (size_t tile = tile_begin; tile < tile_end; ++tile) {
      const size_t n = tile * tile_lanes;
      const Stored* next = tile + 1 < tile_end ? chunk(tile + 1, block) : chunk(tile_begin, block + terms);
      multiply_chunk<lines>(chunk(tile, block), terms, together, free_terms, rows,
                            {y + n, m.outputs, m.outputs - n, block == 0}, next);
    }
  }
}

template <class Stored>
void matmul_free_as(const PackedMatrix& m, const float* x, float* y, size_t rows, size_t tile, size_t tile_end) {
  if (rows > panel_rows) {
    for (size_t r = 0; r < rows; r += pass_rows)
      many_rows_free<Stored>(m, x + r * m.inputs, y + r * m.outputs, least(pass_rows, rows - r), tile, tile_end);
    return;
  }
  for (; tile < tile_end; ++tile) {
    const auto* w = static_cast<const Stored*>(m.data) + tile * m.inputs * tile_lanes;
    const size_t n = tile * tile_lanes;
    with_rows<panel_rows>(rows, [&]<size_t Rows>() CONTINUO_LAMBDA {
      whole_tile<Rows, (Rows <= 2 ? 2 : 1)>(w, m.inputs, x, y + n, m.outputs, m.outputs - n);
    });
  }
}

void matmul_free(const PackedMatrix& m, const float* x, float* y, size_t row, size_t rows, size_t tile,
                 size_t tile_end) {
  if (rows == 0) return;
  x += row * m.inputs;
  y += row * m.outputs;
  switch (m.dtype) {
    case Dtype::f32: return matmul_free_as<float>(m, x, y, rows, tile, tile_end);
    case Dtype::f16: return matmul_free_as<F16>(m, x, y, rows, tile, tile_end);
    case Dtype::bf16: return matmul_free_as<Bf16>(m, x, y, rows, tile, tile_end);
    default: return;
  }
}

// attend_weights() of attend.h.
CONTINUO_INLINE float weights_free(float* weights, size_t count, AttendSums& sums) {
  const float highest = quick_max(weights, count);
  const float most = !sums.begun || highest > sums.m ? highest : sums.m;
  const float carry = sums.begun ? quick_exp(splat<Vec>(sums.m - most))[0] : 0.0f;
  Vec total{};
  size_t p = 0;
  for (; p + width <= count; p += width) {
    const Vec e = quick_exp(load<Vec>(weights + p) - most);
    store(weights + p, e);
    total += e;
  }
  float rest = 0.0f;
  for (; p < count; ++p) rest += weights[p] = quick_exp(splat<Vec>(weights[p] - most))[0];
  for (size_t lane = 0; lane < width; ++lane) rest += total[lane];
  sums.total = sums.total * carry + rest;
  sums.m = most;
  sums.begun = true;
  return carry;
}

// Queries × vectors of keys whose scores are summed side by side, channel after channel: no partial sums are joined.
// As many sums as the registers of the instruction set hold.
constexpr size_t free_queries = score_rows, free_vectors = 4;

// What ExactMany of attend_rows.h does, in free order. Scores of few queries wait for memory, and stay as they are.
struct Free {
  static CONTINUO_INLINE float weights(float* scores, size_t, size_t count, AttendSums& sums) {
    return weights_free(scores, count, sums);
  }
  static CONTINUO_INLINE void end(const Looking& query, size_t channels) {
    const float factor = 1.0f / query.sums.total;
    for (size_t i = 0; i < channels; ++i) query.y[i] *= factor;
  }
  template <class S> static void scores(const Vectors<S>& keys, const Looking* queries, size_t rows, size_t first,
                                        size_t last, size_t seeing, size_t channels, float scale,
                                        float (*out)[block_terms], Fetch& next) {
    static_assert(free_vectors % score_vectors == 0);
    constexpr size_t groups = free_vectors / score_vectors;
    alignas(64) float turned[groups][block_terms * turned_keys];
    Slot slot = keys.first;
    for (size_t p = 0, from = seeing; first + p < last; p += free_vectors * width) {
      for (size_t g = 0; g < groups; ++g) {
        const size_t before = p + g * turned_keys, left = last - first;
        const size_t count = before < left ? least(turned_keys, left - before) : 0;
        slot = turn_keys(keys, slot, count, channels, turned[g]);
        next.positions(count);
      }
      while (queries[from].last <= first + p) ++from;
      each_panel<free_queries>(rows - from, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
        Vec acc[Rows][free_vectors] = {};
        for (size_t i = 0; i < channels; ++i) {
          Vec k[free_vectors];
#pragma GCC unroll 16
          for (size_t v = 0; v < free_vectors; ++v)
            k[v] = load<Vec>(turned[v / score_vectors] + i * turned_keys + v % score_vectors * width);
#pragma GCC unroll 16
          for (size_t r = 0; r < Rows; ++r) {
            const Vec value = splat<Vec>(queries[from + row + r].q[i]);
#pragma GCC unroll 16
            for (size_t v = 0; v < free_vectors; ++v) acc[r][v] = fma(value, k[v], acc[r][v]);
          }
        }
#pragma GCC unroll 16
        for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
          for (size_t v = 0; v < free_vectors; ++v)
            store(out[from + row + r] + p + v * width, splat<Vec>(scale) * acc[r][v]);
        }
      });
    }
  }
};

}  // namespace
}  // namespace CONTINUO_ISA

Kernels free_order(const Kernels& exact) {
  using namespace CONTINUO_ISA;
  Kernels out = exact;
  out.name = "free order";
  out.exp = quick_exps;
  out.max = quick_max;
  out.sum_exp = quick_sum_exp;
  out.dot = quick_dot;
  out.map_silu = quick_silu;
  out.silu = quick_silu;
  out.matmul = matmul_free;
  out.rmsnorm = quick_rmsnorm;
  out.attend = attend<Free>;
  out.attend_rows = attend_rows<Free>;
  return out;
}

}  // namespace continuo
