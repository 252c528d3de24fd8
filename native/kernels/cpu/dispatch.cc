#include "kernels.h"

namespace continuo {

const Kernels& best_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  // x86-64-v3 is what the documents ask for; an older CPU, or an emulated one, gets the same bits slowly.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  return v4 ? avx512_kernels : v3 ? avx2_kernels : plain_kernels;
#else
  return plain_kernels;
#endif
}

}  // namespace continuo
