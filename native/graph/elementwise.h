// Ops that are functions of single numbers, a line each. The line and a function of the same name in backends/math.h
// are the whole of such an op in native/: its entry in the op table (ops.cc), its kernels
// (backends/cpu/kernels/table.h, backends/cuda/kernels/rows.h), both executors and the epilogues of products come from
// here.
#pragma once

// X(name, cost): one operand. `cost`: multiply-adds an element is worth, for sharing work out; a guess is enough.
#define CONTINUO_UNARY_OPS(X) \
  X(tanh, 12)                 \
  X(sigmoid, 12)              \
  X(relu2, 2)                 \
  X(silu, 12)                 \
  X(gelu, 12)                 \
  X(softplus, 12)             \
  X(decay, 12)

// X(name, cost): two operands, the second a value or a constant vector.
#define CONTINUO_BINARY_OPS(X) \
  X(add, 2)                    \
  X(mul, 2)
