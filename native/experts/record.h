// The form of one expert in an expert store: a record (docs/experts.md).
//
// An expert of a mixture computes down(silu(gate x) ⊙ up x): three matrices. A record has gate, up and down one behind
// the other, each as codes, then scales, in tiles of 64 outputs:
//
//   codes   [⌈outputs/64⌉][units of a row][64] units: unit (tile, u, lane) is unit u of row 64 · tile + lane
//   scales  [⌈outputs/64⌉][⌈inputs/group⌉][64] F16; none for floats
//
// A unit is what a row of the source is made of: a byte of whole numbers, or a float. Past the last row codes are those
// of nothing but zeros, scales 0. Nothing is coded anew: a record is the source turned around, and turns back into it
// bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"

namespace continuo::experts {

enum class Coding : uint32_t { q8 = 1, i4 = 2, ternary3 = 3, ternary2 = 4, f32 = 16, f16 = 17, bf16 = 18 };

// none: no coding has this number, or name.
std::optional<Coding> coding_of(uint32_t number);
std::optional<Coding> coding_named(std::string_view name);
const char* name_of(Coding coding);
// Whether the numbers of this coding are floats, which have no scales.
bool is_float(Coding coding);

constexpr size_t lanes = 64;    // outputs of a tile
constexpr size_t matrices = 3;  // gate, up, down
constexpr size_t scale_bytes = 2;
const char* matrix_name(size_t which);

// What all experts of a layer have in common.
struct ExpertShape {
  Coding coding = Coding::ternary3;
  uint32_t channels = 0;  // inputs of gate and up, outputs of down
  uint32_t inner = 0;     // outputs of gate and up, inputs of down
  uint32_t group = 0;     // inputs that share a scale: 32 or 64; floats: 0
  bool operator==(const ExpertShape&) const = default;
};

// The least and the most that a shape may be; a sentence says which number is outside.
Status check_shape(const ExpertShape& shape);

// One matrix of an expert.
struct MatrixForm {
  size_t outputs, inputs;
  size_t units, unit_bytes;  // of a row
  size_t groups;             // scales of a row; floats: 0

  size_t tiles() const { return (outputs + lanes - 1) / lanes; }
  // In the source, rows one behind the other.
  size_t source_codes() const { return outputs * units * unit_bytes; }
  size_t source_scales() const { return outputs * groups * scale_bytes; }
  // In a record.
  size_t codes() const { return tiles() * units * unit_bytes * lanes; }
  size_t scales() const { return tiles() * groups * scale_bytes * lanes; }
};

MatrixForm form_of(const ExpertShape& shape, size_t which);
// Bytes of a record without padding.
size_t payload_bytes(const ExpertShape& shape);

// The tensors of one matrix, row-major.
struct MatrixSource {
  std::span<const std::byte> codes, scales;
};
using ExpertSource = std::array<MatrixSource, matrices>;

// Writes the record of an expert. `out` has payload_bytes. Where the source holds codes or scales that no number has:
// INVALID, with the matrix and the element.
Status pack_record(const ExpertShape& shape, const ExpertSource& source, std::span<std::byte> out);

// Writes the tensors of one matrix as they were in the source; `codes` and `scales` have source_codes and
// source_scales. The record must hold payload_bytes.
void unpack_matrix(const ExpertShape& shape, size_t which, std::span<const std::byte> record,
                   std::span<std::byte> codes, std::span<std::byte> scales);

}  // namespace continuo::experts
