// Fills Moments on the CPU.
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "base/threads.h"
#include "compile/program.h"
#include "runtime/executor/moments.h"

namespace continuo {

class Model;

// Gives each wanted matrix of the model a sum. `pool` and `kernels` outlive the executor's last use of the moments.
void prepare_moments(Moments& moments, const Model& model, ThreadPool& pool, const Kernels& kernels);
// Adds rows x [rows, inputs].
void add_rows(Moments::Sum& sum, const float* x, size_t rows, ThreadPool& pool, const Kernels& kernels);

}  // namespace continuo
