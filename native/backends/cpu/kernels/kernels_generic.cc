// The baseline of the architecture: NEON on arm64; on x86-64 it serves the tests as a third opinion.
#define CONTINUO_ISA generic
#include "backends/cpu/kernels/table.h"

namespace continuo {
const Kernels generic_kernels = CONTINUO_TABLE("generic");
}
