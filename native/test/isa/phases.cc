#include "test/isa/phases.h"

#include <string_view>

#include "backends/cpu/kernels/kernels.h"

namespace continuo::test {

std::vector<Phases> runnable_phases() {
  std::vector<Phases> out;
  for (const auto* table : runnable_kernels()) {
    const std::string_view name = table->name;
#if defined(__x86_64__)
    if (name == "avx512") out.push_back(phases_avx512);
    if (name == "avx2") out.push_back(phases_avx2);
#endif
    if (name == "generic") out.push_back(phases_generic);
  }
  return out;
}

}  // namespace continuo::test
