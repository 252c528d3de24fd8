// The changes that a vector of weights may undergo when it is read (storage.h).
#pragma once

#include "weights/storage.h"

namespace continuo {

// eˣ in binary64 by additions and multiplications in a written order: the same bits on every machine. Within 4 ulp for
// |x| ≤ 700; infinity above, 0 below.
double exp_of(double x);

float mapped(Map map, float w);

}  // namespace continuo
