// Constants as plain numbers, for people and tests: what the kernels multiply by, read back from packed memory.
#pragma once

#include <span>

#include "weights/weights.h"

namespace continuo {

// Numbers of a constant: packed and rows [outputs, inputs], stack [members, outputs, inputs], vector [outputs].
inline size_t numbers_of(const Constant& constant) { return constant.members * constant.outputs * constant.inputs; }

// Writes the constant's numbers [numbers_of(constant)] in f32, row-major. `bytes`: those of the constant, on the host.
// Exact, but for one rounding in q6_k, where d·sc is exact and its product with the code may need 25 bits, and in q4_k,
// where two exact products are subtracted: the numbers are those that blocks.h gives for the file's blocks.
void widen(const Constant& constant, std::span<const std::byte> bytes, float* out);

}  // namespace continuo
