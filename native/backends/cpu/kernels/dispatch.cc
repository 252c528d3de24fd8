#include <cstdlib>
#include <string_view>

#include "backends/cpu/kernels/kernels.h"

namespace continuo {

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> tables;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // x86-64-v3 is what the documents ask for; an older CPU, or an emulated one, gets the same bits slowly.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  [[maybe_unused]] const bool v4_vnni = v4 && __builtin_cpu_supports("avx512vnni");
  // CMakeLists.txt defines one for each set that was compiled.
#ifdef CONTINUO_HAS_avx512vnni
  if (v4_vnni) tables.push_back(&avx512vnni_kernels);
#endif
#ifdef CONTINUO_HAS_avx512
  if (v4) tables.push_back(&avx512_kernels);
#endif
#ifdef CONTINUO_HAS_avx2
  if (v3) tables.push_back(&avx2_kernels);
#endif
#endif
  tables.push_back(&generic_kernels);
  return tables;
}

Result<const Kernels*> choose_kernels() {
  const auto tables = runnable_kernels();
  const char* wanted = std::getenv("CONTINUO_ISA");
  // `all` asks the build for every set (tools/build-tools.mjs), and here for no certain one.
  if (wanted == nullptr || *wanted == '\0' || std::string_view(wanted) == "all") return tables.front();
  std::string names;
  for (const auto* table : tables) {
    if (std::string_view(wanted) == table->name) return table;
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  }
  return invalid("CONTINUO_ISA is \"", wanted, "\", expected one that this CPU runs: ", names,
                 ". Unset it to take the fastest.");
}

}  // namespace continuo
