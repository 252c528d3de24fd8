// Products of one row with a matrix of an expert, number by number. `product` has the bits of the kernels: the row is
// rounded to whole numbers group by group (backends/jobs.h). `straight` does not round the row: what derivatives pass
// through (Bengio, Léonard, Courville 2013).
#pragma once

#include "weights/packed_matrix.h"

namespace continuo::experts {

// q8 and ternary matrices. x [inputs], y [outputs].
void product(const PackedMatrix& w, const float* x, float* y);
void straight(const PackedMatrix& w, const float* x, float* y);

}  // namespace continuo::experts
