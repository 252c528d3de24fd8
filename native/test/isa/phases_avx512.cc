#define CONTINUO_ISA test_avx512
#include "test/isa/phases.h"

void continuo::test::phases_avx512(const uint32_t* phase, float* sin, float* cos, size_t n) {
  continuo::test_avx512::phases(phase, sin, cos, n);
}
