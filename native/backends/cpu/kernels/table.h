// Included once by each kernels_*.cc after it has named its instruction set in CONTINUO_ISA.
#pragma once

#include "backends/cpu/kernels/attend_rows.h"
#include "backends/cpu/kernels/attend_split.h"
#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/list.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/matmul_blocks.h"
#include "backends/cpu/kernels/memory.h"
#include "backends/cpu/kernels/ngram.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/pdr.h"
#include "backends/cpu/kernels/quantise.h"
#include "backends/cpu/kernels/rope.h"
#include "backends/cpu/kernels/routing.h"
#include "backends/cpu/kernels/ssm.h"
#include "backends/cpu/kernels/wkv7.h"

// clang-format off
#define CONTINUO_ENTRY(name, cost) CONTINUO_ISA::map_##name,
#define CONTINUO_TABLE(label)                                                                                   \
  {{label, CONTINUO_ISA::map_exp, CONTINUO_ISA::map_log, CONTINUO_ISA::max, CONTINUO_ISA::sum_exp,              \
    CONTINUO_ISA::finite, CONTINUO_ISA::softmax, CONTINUO_ISA::dot,                                               \
    CONTINUO_ISA::map_silu, CONTINUO_ISA::map_gelu, CONTINUO_ISA::norm, CONTINUO_ISA::unit, CONTINUO_ISA::rope},  \
   CONTINUO_ISA::matmul, CONTINUO_ISA::quantise, CONTINUO_ISA::matmul_integers, CONTINUO_ISA::wkv7,            \
   CONTINUO_ISA::ssm, CONTINUO_ISA::l2norm, CONTINUO_ISA::bonus,                                               \
   CONTINUO_UNARY_OPS(CONTINUO_ENTRY) CONTINUO_BINARY_OPS(CONTINUO_ENTRY) CONTINUO_ISA::map_lerp,               \
   CONTINUO_ISA::attend, CONTINUO_ISA::attend_shares, CONTINUO_ISA::attend_rows,                         \
   CONTINUO_ISA::split_scores, CONTINUO_ISA::split_values, CONTINUO_ISA::split_join, CONTINUO_ISA::rmsnorm,     \
   CONTINUO_ISA::map_range, CONTINUO_ISA::map_clamp,                                                            \
   CONTINUO_ISA::conv, CONTINUO_ISA::memory, CONTINUO_ISA::mix, CONTINUO_ISA::recall,       \
   CONTINUO_ISA::memory_first, CONTINUO_ISA::map_scale, CONTINUO_ISA::softmax_rows, CONTINUO_ISA::normalise,    \
   CONTINUO_ISA::combine, CONTINUO_ISA::rerotate_kv,                                             \
   CONTINUO_ISA::pdr, CONTINUO_ISA::ngram_read, CONTINUO_ISA::ngram_first, CONTINUO_ISA::recall_keys, CONTINUO_ISA::torus, CONTINUO_ISA::axpy, CONTINUO_ISA::whole}
// clang-format on
