#include "kernels.h"

namespace continuo {

const Kernels& best_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? avx512_kernels : avx2_kernels;
#else
  return plain_kernels;
#endif
}

}  // namespace continuo
