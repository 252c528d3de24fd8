// The op table: one entry for each op of a graph. The reader takes the op's attributes from it, the checker its
// operands, the compiler the order of its rows and its effect on state, the executors its cost and whether it can be an
// epilogue. docs/graph.md is tested against the table (test/engine/graph-doc.test.ts). A device says which ops it can
// run (Device::runs).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "graph/graph.h"

namespace continuo {

class Checker;
struct RowShape;

// The requirement on one input. C: the elements of the first input.
enum class Need : uint8_t {
  none,     // no such input
  id,       // i32 of the row, one number
  table,    // constant, layout rows
  matrix,   // constant, layout packed
  vector,   // f32 of the row [C]
  weights,  // constant vector [C]
  numbers,  // f32 of the row: the first input of any shape, a later one of the first's shape
  operand,  // like numbers, or a constant vector of the first's shape
  any,      // of the row, of any dtype and shape
  history,  // a persistent with an axis that follows a counter
  form,     // left to the op's own check
};

// How a step may run the op over its rows.
enum class Rows : uint8_t {
  local,     // each row by itself, without state: a thread may take some rows through several such ops
  together,  // all rows of the step at once
  runs,      // run by run: the op must know which rows belong to which context
  control,   // computes nothing: loop, branch, return
};

// The op's effect on the tables and counters that it names.
enum class State : uint8_t {
  none,
  reads,
  writes,    // writes the member that it names; each row may write another one
  advances,  // a recurrence: its kernel walks the rows of a run in token order
  mixes,     // writes in the first row of a segment, once for all rows of the segment
  first,     // writes the first numbers of a table
  counts,    // increments or decrements a counter
  resets,    // sets a table or counter to its first value
};

// Attributes: members of a node in JSON beside op, in, out and state.
namespace attribute {
constexpr uint32_t groups = 1 << 0;
constexpr uint32_t eps = 1 << 1;
constexpr uint32_t value = 1 << 2;  // a literal right-hand side, in place of the last input
constexpr uint32_t part = 1 << 3;   // from, to
constexpr uint32_t dtype = 1 << 4;
constexpr uint32_t attention = 1 << 5;  // shared, scale
constexpr uint32_t segment = 1 << 6;
constexpr uint32_t increments = 1 << 7;
constexpr uint32_t levels = 1 << 8;  // low, high
constexpr uint32_t form = 1 << 9;    // rule, retention, periods and the numbers of a memory's form
constexpr uint32_t modulo = 1 << 10;
constexpr uint32_t by = 1 << 11;
constexpr uint32_t factor = 1 << 12;
constexpr uint32_t count = 1 << 13;
constexpr uint32_t activation = 1 << 14;
constexpr uint32_t times = 1 << 15;
constexpr uint32_t write = 1 << 16;   // convex or plain
constexpr uint32_t sweeps = 1 << 17;  // iterations, inflation
constexpr uint32_t learn = 1 << 18;   // read or all
}  // namespace attribute

struct OpTraits {
  Op op;
  std::string_view name;  // in a graph's text
  std::array<Need, 6> in{};
  bool more = false;         // may have more inputs than `in` lists; the op's own check covers those
  bool out = true;           // writes a volatile
  uint32_t attributes = 0;   // of attribute::
  bool named_state = false;  // needs "state"
  Rows rows = Rows::local;
  State state = State::none;
  // The kernel takes one member of a table for all rows of a run. Where each row picks its own, rows run one by one.
  bool one_place = false;
  // Element i of the output depends on element i of the inputs only, so the output may overwrite an input.
  bool elementwise = false;
  // Can be an epilogue: a product's kernel may apply it to its outputs before it stores them.
  bool epilogue = false;
  uint8_t cost = 2;  // time of one element of the output, in multiply-adds
  // Checks beyond `in`. May change the shape of the output, which is that of the first input before the call.
  void (*check)(Checker&, RowShape&) = nullptr;

  size_t inputs() const;
  bool has(uint32_t attribute) const { return (attributes & attribute) != 0; }
};

const char* name_of(Need need);
const OpTraits& traits_of(Op op);
std::span<const OpTraits> op_table();
// The JSON members of each bit of attribute::, in the order of the bits; a space separates members of one bit.
std::span<const std::string_view> attribute_names();
// Null where no op has this name. Also null for loop, branch and return, which JSON writes without "op".
const OpTraits* find_op(std::string_view name);

struct RowShape {
  std::vector<uint64_t> extents;
  Type type = Type::f32;
};

// Checks kinds, layouts, types and shapes of the operands of a node that is no loop, branch or return. Returns the
// shape of its output. The message of an error names the node and the operand.
Result<RowShape> check_node(const Graph& graph, const Node& node);

}  // namespace continuo
