// The op table: what each op of a graph is. The reader takes its attributes from it, the checker its operands, the
// compiler how its rows may go and what it does to state, the executors its cost and epilogues; docs/graph.md is tested
// against it (test/engine/ops.test.ts). A device says which ops it runs (Device::runs).
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "graph/graph.h"

namespace continuo {

class Checker;
struct RowShape;

// What an input in its place must be. C: the elements of the first input.
enum class Need : uint8_t {
  none,     // no input in this place
  id,       // i32 of the row, one number
  table,    // constant, layout rows
  matrix,   // constant, layout packed
  vector,   // f32 of the row [C]; in a later place: as long as the first
  weights,  // constant vector [C]
  numbers,  // f32 of the row, of any shape; in a later place: of the first's shape
  operand,  // as numbers, or a constant vector of the first's shape
  any,      // of the row, of any dtype and shape
  history,  // a persistent with an axis that follows a counter
  form,     // what the op's own check says
};

// How a step may take the op's rows.
enum class Rows : uint8_t {
  local,     // each row by itself, without state: a thread may take some rows through several such ops
  together,  // all rows of the step at once
  runs,      // needs to know which rows are whose
  control,   // no work of its own: loop, branch, return
};

// What the op does to the tables and counters that it names.
enum class State : uint8_t {
  none,
  reads,
  writes,    // the member it names; rows may write different ones
  advances,  // a recurrence: walks the rows of a run in order by itself
  mixes,     // in a segment's first row, once for all rows of the segment
  first,     // gives a table its first numbers
  counts,    // moves a counter
  resets,    // back to first values
};

// Members of a node in JSON beside op, in, out and state.
namespace attribute {
constexpr uint16_t groups = 1 << 0;
constexpr uint16_t eps = 1 << 1;
constexpr uint16_t value = 1 << 2;  // a literal right-hand side, in place of the last input
constexpr uint16_t part = 1 << 3;   // from, to
constexpr uint16_t dtype = 1 << 4;
constexpr uint16_t attention = 1 << 5;  // shared, scale
constexpr uint16_t segment = 1 << 6;
constexpr uint16_t increments = 1 << 7;
constexpr uint16_t levels = 1 << 8;  // low, high
constexpr uint16_t form = 1 << 9;    // rule, retention, periods and the numbers of a memory's form
constexpr uint16_t modulo = 1 << 10;
constexpr uint16_t by = 1 << 11;
}  // namespace attribute

struct OpTraits {
  Op op;
  std::string_view name;  // in a graph's text
  std::array<Need, 6> in{};
  bool more = false;         // may have more inputs than `in` says: forms of their own
  bool out = true;           // writes a volatile
  uint16_t attributes = 0;   // of attribute::
  bool named_state = false;  // needs "state"
  Rows rows = Rows::local;
  State state = State::none;
  // Finds the members it works on once for all rows of a run: where each row picks its own, rows go one by one.
  bool one_place = false;
  // Element i of the output needs no other element of an input: the output may lie over an input.
  bool elementwise = false;
  // A product may take it of its outputs on the way.
  bool epilogue = false;
  uint8_t cost = 2;  // multiply-adds that one element of the output is worth
  // What `in` cannot say; may change the shape of the output, which is that of the first input unless told.
  void (*check)(Checker&, RowShape&) = nullptr;

  size_t inputs() const;
  bool has(uint16_t attribute) const { return (attributes & attribute) != 0; }
};

const char* name_of(Need need);
const OpTraits& traits_of(Op op);
std::span<const OpTraits> op_table();
// What the bits of attribute:: are called in JSON, in their order; several members of one bit with a space between.
std::span<const std::string_view> attribute_names();
// Null for names of no op; loop, branch and return are written in another way.
const OpTraits* find_op(std::string_view name);

struct RowShape {
  std::vector<uint64_t> extents;
  Type type = Type::f32;
};

// Checks kinds, layouts, types and shapes of the operands of a node that is no loop, branch or return, and gives what
// it writes. The message names node and variable.
Result<RowShape> check_node(const Graph& graph, const Node& node);

}  // namespace continuo
