#include "runtime/executor/routes.h"

#include <algorithm>

namespace continuo {

Routes routes_of(std::span<const int32_t> ids, size_t matrices) {
  Routes out;
  std::vector<size_t> order(ids.size());
  for (size_t place = 0; place < ids.size(); ++place) order[place] = place;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a] < ids[b]; });
  for (const size_t place : order) {
    if (ids[place] < 0 || static_cast<size_t>(ids[place]) >= matrices) {
      out.lost.push_back(place);
      continue;
    }
    const auto matrix = static_cast<size_t>(ids[place]);
    if (out.routes.empty() || out.routes.back().matrix != matrix) out.routes.push_back({matrix, {}});
    out.routes.back().places.push_back(place);
  }
  std::stable_sort(out.routes.begin(), out.routes.end(),
                   [](const Route& a, const Route& b) { return a.places.size() > b.places.size(); });
  return out;
}

std::span<const Route> alike(std::span<const Route> routes, size_t first, size_t most) {
  size_t count = 1;
  while (first + count < routes.size() && count < most &&
         routes[first + count].places.size() == routes[first].places.size())
    ++count;
  return routes.subspan(first, count);
}

}  // namespace continuo
