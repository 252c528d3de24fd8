// Elementwise ops: functions of one number or two, a line each. To add one, write its line here and a function of the
// same name in backends/math.h. The op table (ops.cc), the kernels (backends/cpu/kernels/table.h,
// backends/cuda/kernels/rows.h), both executors and the epilogues of products are generated from these lines.
#pragma once

// X(name, cost): one operand. `cost`: the time of an element in multiply-adds, for sharing work between threads; an
// estimate is enough.
#define CONTINUO_UNARY_OPS(X) \
  X(tanh, 12)                 \
  X(sigmoid, 12)              \
  X(relu2, 2)                 \
  X(silu, 12)                 \
  X(gelu, 12)                 \
  X(gelu_erf, 16)             \
  X(softplus, 12)             \
  X(exp, 12)                  \
  X(decay, 12)

// X(name, cost): two operands, the second a value or a constant vector.
#define CONTINUO_BINARY_OPS(X) \
  X(add, 2)                    \
  X(mul, 2)
