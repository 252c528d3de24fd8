#include "experts/record.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "base/dtype.h"

namespace continuo::experts {

namespace {

struct Traits {
  Coding coding;
  const char* name;
  size_t per_unit;    // numbers in a unit
  size_t unit_bytes;  // 1 for whole numbers
  uint8_t zeros;      // the byte of nothing but zeros
};

constexpr std::array<Traits, 7> codings{{
    {Coding::q8, "q8", 1, 1, 0},
    {Coding::i4, "i4", 2, 1, 0x88},
    {Coding::ternary3, "ternary3", 5, 1, 121},
    {Coding::ternary2, "ternary2", 4, 1, 0x55},
    {Coding::f32, "f32", 1, 4, 0},
    {Coding::f16, "f16", 1, 2, 0},
    {Coding::bf16, "bf16", 1, 2, 0},
}};

const Traits& traits_of(Coding coding) {
  for (const auto& each : codings)
    if (each.coding == coding) return each;
  return codings[0];  // no other number becomes a Coding
}

constexpr uint32_t most_width = 1u << 20;

// Whether the coding has this byte.
bool is_code(Coding coding, std::byte byte) {
  const auto value = std::to_integer<unsigned>(byte);
  switch (coding) {
    case Coding::q8: return value != 0x80;
    case Coding::ternary3: return value <= 242;
    case Coding::ternary2: return (value & value >> 1 & 0x55) == 0;
    default: return true;
  }
}

// Copies row-major rows of units into tiles, or back. `Unit` is a byte or a number.
template <class Unit> void to_tiles(const std::byte* rows, size_t outputs, size_t units, Unit padding, std::byte* out) {
  const size_t tiles = (outputs + lanes - 1) / lanes;
  for (size_t tile = 0; tile < tiles; ++tile) {
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t row = tile * lanes + lane;
      std::byte* to = out + (tile * units * lanes + lane) * sizeof(Unit);
      const std::byte* from = rows + row * units * sizeof(Unit);
      for (size_t u = 0; u < units; ++u)
        std::memcpy(to + u * lanes * sizeof(Unit),
                    row < outputs ? from + u * sizeof(Unit) : reinterpret_cast<const std::byte*>(&padding),
                    sizeof(Unit));
    }
  }
}

template <class Unit> void from_tiles(const std::byte* tiled, size_t outputs, size_t units, std::byte* rows) {
  for (size_t row = 0; row < outputs; ++row) {
    const std::byte* from = tiled + (row / lanes * units * lanes + row % lanes) * sizeof(Unit);
    for (size_t u = 0; u < units; ++u)
      std::memcpy(rows + (row * units + u) * sizeof(Unit), from + u * lanes * sizeof(Unit), sizeof(Unit));
  }
}

// Calls `call` with a zero of the unit's type.
template <class Call> void with_unit(size_t bytes, const Call& call) {
  if (bytes == 4)
    call(uint32_t{0});
  else if (bytes == 2)
    call(uint16_t{0});
  else
    call(uint8_t{0});
}

// Where matrix `which` begins in a record.
size_t begin_of(const ExpertShape& shape, size_t which) {
  size_t at = 0;
  for (size_t each = 0; each < which; ++each) {
    const MatrixForm form = form_of(shape, each);
    at += form.codes() + form.scales();
  }
  return at;
}

}  // namespace

std::optional<Coding> coding_of(uint32_t number) {
  for (const auto& each : codings)
    if (static_cast<uint32_t>(each.coding) == number) return each.coding;
  return std::nullopt;
}

std::optional<Coding> coding_named(std::string_view name) {
  for (const auto& each : codings)
    if (each.name == name) return each.coding;
  return std::nullopt;
}

const char* name_of(Coding coding) { return traits_of(coding).name; }
bool is_float(Coding coding) { return static_cast<uint32_t>(coding) >= static_cast<uint32_t>(Coding::f32); }

const char* matrix_name(size_t which) {
  constexpr std::array<const char*, matrices> names{"gate", "up", "down"};
  return names[which];
}

Status check_shape(const ExpertShape& shape) {
  if (shape.channels == 0 || shape.channels > most_width || shape.inner == 0 || shape.inner > most_width)
    return invalid("experts of ", shape.channels, " channels and ", shape.inner, " inner ones; expected 1 to ",
                   most_width, " of each.");
  const bool fits = is_float(shape.coding) ? shape.group == 0 : shape.group == 32 || shape.group == 64;
  if (!fits)
    return invalid("experts in ", name_of(shape.coding), " with groups of ", shape.group, "; expected ",
                   is_float(shape.coding) ? "none." : "32 or 64.");
  return Done{};
}

MatrixForm form_of(const ExpertShape& shape, size_t which) {
  const Traits& traits = traits_of(shape.coding);
  const size_t outputs = which == 2 ? shape.channels : shape.inner, inputs = which == 2 ? shape.inner : shape.channels;
  const auto parts = [&](size_t of) { return (inputs + of - 1) / of; };
  return {outputs, inputs, parts(traits.per_unit), traits.unit_bytes, shape.group == 0 ? 0 : parts(shape.group)};
}

size_t payload_bytes(const ExpertShape& shape) { return begin_of(shape, matrices); }

Status pack_record(const ExpertShape& shape, const ExpertSource& source, std::span<std::byte> out) {
  const Traits& traits = traits_of(shape.coding);
  std::byte* to = out.data();
  for (size_t which = 0; which < matrices; ++which) {
    const MatrixForm form = form_of(shape, which);
    const auto& [codes, scales] = source[which];
    if (codes.size() != form.source_codes() || scales.size() != form.source_scales())
      return internal("a ", matrix_name(which), " of ", codes.size(), " and ", scales.size(), " bytes, expected ",
                      form.source_codes(), " and ", form.source_scales(), ".");
    if (!is_float(shape.coding)) {
      for (size_t i = 0; i < codes.size(); ++i)
        if (!is_code(shape.coding, codes[i]))
          return invalid(matrix_name(which), " holds the byte ", std::to_integer<int>(codes[i]), " at element ", i,
                         ", which is no code of ", traits.name, ". The model is damaged: convert it again.");
      for (size_t i = 0; i < scales.size() / scale_bytes; ++i) {
        uint16_t scale = 0;
        std::memcpy(&scale, scales.data() + i * scale_bytes, scale_bytes);
        if (!std::isfinite(widen_f16(scale)))
          return invalid("the scales of ", matrix_name(which), " hold a number that is not finite at element ", i,
                         ". The model is damaged: convert it again.");
      }
    }
    with_unit(form.unit_bytes, [&](auto zero) {
      if constexpr (sizeof zero == 1) zero = traits.zeros;
      to_tiles(codes.data(), form.outputs, form.units, zero, to);
    });
    to += form.codes();
    if (form.groups > 0) to_tiles(scales.data(), form.outputs, form.groups, uint16_t{0}, to);
    to += form.scales();
  }
  return Done{};
}

void unpack_matrix(const ExpertShape& shape, size_t which, std::span<const std::byte> record,
                   std::span<std::byte> codes, std::span<std::byte> scales) {
  const MatrixForm form = form_of(shape, which);
  const std::byte* from = record.data() + begin_of(shape, which);
  with_unit(form.unit_bytes,
            [&](auto zero) { from_tiles<decltype(zero)>(from, form.outputs, form.units, codes.data()); });
  if (form.groups > 0) from_tiles<uint16_t>(from + form.codes(), form.outputs, form.groups, scales.data());
}

}  // namespace continuo::experts
