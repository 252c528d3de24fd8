// x86-64-v3: AVX2, FMA, F16C. The least x86-64 CPU Continuo runs on.
#define CONTINUO_ISA avx2
#include "backends/cpu/kernels/table.h"

namespace continuo {
const Kernels avx2_kernels = CONTINUO_TABLE("avx2");
}
