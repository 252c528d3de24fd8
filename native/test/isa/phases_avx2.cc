#define CONTINUO_ISA test_avx2
#include "test/isa/phases.h"

void continuo::test::phases_avx2(const uint32_t* phase, float* sin, float* cos, size_t n) {
  continuo::test_avx2::phases(phase, sin, cos, n);
}
