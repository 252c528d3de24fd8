#define CONTINUO_ISA test_generic
#include "test/isa/phases.h"

void continuo::test::phases_generic(const uint32_t* phase, float* sin, float* cos, size_t n) {
  continuo::test_generic::phases(phase, sin, cos, n);
}
