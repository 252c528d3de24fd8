// x86-64-v4: AVX-512.
#define CONTINUO_ISA avx512
#include "backends/cpu/kernels/table.h"

namespace continuo {
const Kernels avx512_kernels = CONTINUO_TABLE("avx512");
}
