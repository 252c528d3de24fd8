// x86-64-v4 with AVX512-VNNI: products of bytes in one instruction.
#define CONTINUO_ISA avx512vnni
#include "backends/cpu/kernels/table.h"

namespace continuo {
const Kernels avx512vnni_kernels = CONTINUO_TABLE("avx512vnni");
}
