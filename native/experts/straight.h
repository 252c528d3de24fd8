// Products of one row with a matrix of a record, number by number. `product` has the bits of the kernels: the row is
// rounded to whole numbers group by group (backends/jobs.h). `straight` does not round the row: what derivatives pass
// through (Bengio, Léonard, Courville 2013).
#pragma once

#include <span>

#include "experts/record.h"

namespace continuo::experts {

// Codings of whole numbers only. x [inputs], y [outputs].
void product(const ExpertShape& shape, size_t which, std::span<const std::byte> record, const float* x, float* y);
void straight(const ExpertShape& shape, size_t which, std::span<const std::byte> record, const float* x, float* y);

}  // namespace continuo::experts
