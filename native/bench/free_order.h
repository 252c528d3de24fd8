// The CPU's kernels without the rules of one arithmetic, for a bench alone (bench/exactness.ts): what the same kernels
// could be if sums might run in any order.
#pragma once

#include "backends/cpu/kernels/kernels.h"

namespace continuo {

// The table with other functions where a free order could pay. What is freed, function by function:
//   matmul       few rows: the whole sum stays in registers, in two sets by even and odd k where these are idle; many
//                rows: blocks of 512 terms
//   attend       exp of five terms and one scaling; sums of weights in as many lanes as there are
//   attend_rows  the same, and scores summed over channels one after the other, six queries × four vectors of keys
//   rmsnorm      sums in any lanes
//   silu, exp, sum_exp, max, dot  the same exp, any lanes
// All of it is compiled with -ffast-math for this very CPU. Not freed, because nothing could be gained: products of
// bytes, whose sums are exact in any order, and the cut into threads, since a matrix has more tiles than there are
// threads.
Kernels free_order(const Kernels& exact);

}  // namespace continuo
