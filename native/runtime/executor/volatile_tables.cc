#include "runtime/executor/volatile_tables.h"

#include <algorithm>

namespace continuo {

namespace {

constexpr size_t element = sizeof(float);

}  // namespace

const std::byte* VolatileTables::read(uint32_t member, size_t first) const {
  const bool own = std::any_of(written_.begin(), written_.end(), [&](const Part& p) { return p.member == member; });
  return (own ? copies_.at(member).data() : model_->constants[member].bytes.data()) + first * element;
}

std::byte* VolatileTables::write(uint32_t member, size_t first, size_t count) {
  auto found = copies_.find(member);
  if (found == copies_.end()) {
    const auto& bytes = model_->constants[member].bytes;
    DeviceMemory copy(model_->device, bytes.size());
    model_->device->copy(copy.data(), bytes.data(), bytes.size());
    found = copies_.emplace(member, std::move(copy)).first;
  }
  const Part part{member, first * element, count * element};
  // A row that writes one place again and again, in a loop, notes it once.
  const bool known = std::any_of(written_.begin(), written_.end(), [&](const Part& p) {
    return p.member == member && p.first <= part.first && part.first + part.bytes <= p.first + p.bytes;
  });
  if (!known) written_.push_back(part);
  return found->second.data() + part.first;
}

void VolatileTables::reset(uint32_t member, size_t first, size_t count) {
  if (copies_.contains(member)) restore({member, first * element, count * element});
}

void VolatileTables::end_row() {
  for (const auto& part : written_) restore(part);
  written_.clear();
}

void VolatileTables::restore(const Part& part) {
  model_->device->copy(copies_.at(part.member).data() + part.first,
                       model_->constants[part.member].bytes.data() + part.first, part.bytes);
}

}  // namespace continuo
