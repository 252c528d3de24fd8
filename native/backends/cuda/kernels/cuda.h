// CUDA's runtime, or the part of it that test/emulate has: everything under backends/cuda comes to it through here.
#pragma once

#if defined(CONTINUO_EMULATE)
#include <emulate/cuda.h>
#else
#include <cuda_runtime.h>
#endif
