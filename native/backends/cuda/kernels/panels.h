// How the products of one launch are cut up over blocks of threads; matmul.h and matmul_quantised.h say what is
// computed.
//
// Few rows are bound by the stream of weights. A thread block takes 16 or 32 outputs of one product, and a thread the
// 256 terms of one block sum: so the sums, which must be made term after term, are made side by side, and there are
// enough threads to keep the memory busy. The block sums meet in shared memory and are added in order. Many rows are
// bound by arithmetic: a thread block takes a square of outputs and rows and walks the terms in slices that it shares.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/command.h"
#include "backends/cuda/kernels/scalar.h"
#include "backends/cuda/kernels/words.h"
#include "backends/jobs.h"

// What only the compiler for a device knows.
#if defined(CONTINUO_EMULATE)
#define CONTINUO_GRID_CONSTANT
#define CONTINUO_CALLED __device__ inline
#else
#define CONTINUO_GRID_CONSTANT __grid_constant__
#define CONTINUO_CALLED __device__ inline __noinline__
#endif

namespace continuo::cuda {

// Rows that one pass over the weights serves, and rows up to which such passes are worth it: their weights come from
// memory once, as the thread blocks of all passes over the same outputs run side by side.
constexpr uint32_t pass_rows = 8;
constexpr uint32_t few_rows_most = 32;

// Threads of a block: what a thread keeps in flight needs up to 128 registers.
constexpr uint32_t few_threads = 512;
constexpr uint32_t many_threads = 256;

// From this many thread blocks on, every multiprocessor has one: wide ones are then better, as they read longer pieces.
constexpr uint32_t enough_blocks = 264;

// What one launch is given: its products, and at which thread block each begins. As an argument, so that no thread
// waits for memory to know its work.
struct Products {
  Product of[most_products];
  QuantisedBlock* quantised[most_products];  // quantised dtypes: the rows, [blocks][rows]
  uint32_t begin[most_products];
  uint32_t count;
};

// The product of a thread block: the last that begins at or before it.
CONTINUO_INLINE uint32_t product_at(const Products& products, uint32_t block) {
  uint32_t at = 0;
  for (uint32_t i = 1; i < products.count; ++i) {
    if (products.begin[i] <= block) at = i;
  }
  return at;
}

constexpr uint32_t pieces(uint64_t n, uint32_t of) { return static_cast<uint32_t>((n + of - 1) / of); }

// Stored weights, and what they are: exactly.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

CONTINUO_INLINE float widen(float x) { return x; }
CONTINUO_INLINE float widen(Bf16 x) { return widen_bf16(x.bits); }
CONTINUO_INLINE float widen(F16 x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
#else
  return widen_f16(x.bits);
#endif
}

// Weights, and rows that an earlier launch wrote, change for nobody while a product runs.
CONTINUO_INLINE float load_once(const float* p) { return __ldg(p); }
CONTINUO_INLINE Bf16 load_once(const Bf16* p) { return {__ldg(&p->bits)}; }
CONTINUO_INLINE F16 load_once(const F16* p) { return {__ldg(&p->bits)}; }
CONTINUO_INLINE uint32_t load_once(const uint32_t* p) { return __ldg(p); }
CONTINUO_INLINE int32_t load_once(const int32_t* p) { return __ldg(p); }
CONTINUO_INLINE uint8_t load_once(const uint8_t* p) { return __ldg(p); }
CONTINUO_INLINE int8_t load_once(const int8_t* p) { return __ldg(p); }

// One copy: it is called once per output, and would be larger than the product.
CONTINUO_CALLED float epilogue_of(Task task, float x) {
  switch (task) {
#define CONTINUO_EPILOGUE(name, cost) \
  case Task::name: return name(x);
    CONTINUO_UNARY_OPS(CONTINUO_EPILOGUE)
#undef CONTINUO_EPILOGUE
    default: return x;
  }
}

CONTINUO_INLINE void give(const Product& product, size_t row, uint32_t output, float sum) {
  const size_t at = row * product.outputs + output;
  product.y[at] = sum;
  if (product.epilogue) product.epilogue_out[at] = epilogue_of(product.epilogue_task, sum);
}

// The outputs [Rows][Wide] of a thread block of few rows. Each thread of the block owns some of them, every
// blockDim-th, and adds their block sums in order, from 0.
template <uint32_t Rows, uint32_t Wide> struct Outputs {
  static constexpr uint32_t numbers = Rows * Wide;
  static constexpr uint32_t owned = (numbers + 31) / 32;  // by a thread of the smallest block
  float total[owned] = {};

  // sums [slots][Rows][Wide], in shared memory.
  CONTINUO_INLINE void add(const float* sums, uint32_t slots) {
#pragma unroll
    for (uint32_t i = 0; i < owned; ++i) {
      const uint32_t at = threadIdx.x + i * blockDim.x;
      if (at >= numbers) break;
      for (uint32_t slot = 0; slot < slots; ++slot) total[i] += sums[slot * numbers + at];
    }
  }

  // piece: see cuts.h.
  CONTINUO_INLINE void give(const auto& piece, uint32_t output) const {
    const Product& product = piece.product;
#pragma unroll
    for (uint32_t i = 0; i < owned; ++i) {
      const uint32_t at = threadIdx.x + i * blockDim.x;
      if (at >= numbers) break;
      if (at / Wide < piece.rows && output + at % Wide < product.outputs)
        cuda::give(product, piece.to(at / Wide), output + at % Wide, total[i]);
    }
  }
};

}  // namespace continuo::cuda
