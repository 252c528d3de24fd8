#include "weights/map.h"

#include <cmath>
#include <limits>

namespace continuo {

double exp_of(double x) {
  if (x != x) return x;
  if (x > 700) return std::numeric_limits<double>::infinity();
  if (x < -700) return 0;
  // x = n·ln 2 + r with |r| ≤ ln 2 / 2. The upper part of ln 2 has 32 bits, so that n times it is exact.
  constexpr double log2_e = 0x1.71547652b82fep0, ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
  const double n = std::floor(x * log2_e + 0.5);
  const double r = (x - n * ln2_high) - n * ln2_low;
  // Taylor's series to r¹⁴/14!, whose next term is below 2⁻⁶⁰.
  double sum = 1;
  for (int k = 14; k > 0; --k) sum = 1 + sum * r / k;
  return std::ldexp(sum, static_cast<int>(n));
}

float mapped(Map map, float w) {
  switch (map) {
    case Map::none: return w;
    case Map::one_plus: return 1.0f + w;
    case Map::neg_exp: return static_cast<float>(-exp_of(w));
  }
  return w;
}

}  // namespace continuo
