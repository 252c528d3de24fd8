// Graph: a model as data: declared memory, then blocks of nodes. TypeScript builds it (src/engine/builder.ts) and
// passes it as JSON. No graph runs before `parse_graph` has checked every name, kind, type and shape. docs/graph.md
// describes the format and the meaning of each node; in short:
//
// {
//   "format": "continuo-graph/2",
//   "indices": [{ "name": "l", "extent": 12 }, { "name": "a", "of": "l", "at": [3, 7, 11] }],
//   "declarations": [
//     { "kind": "constant", "name", "shape", "layout": "packed" | "rows" | "vector" | "stack",
//       "ref": "<tensor>" | "pattern": "<tensor with {l}>", "over"?: "l", "from"?: n, "view"?, "columns"?, "map"?,
//       "transposed"?, "row"?, "storage"?: "q8" | "i4" | "ternary2" | "ternary3", "scales"?, "group"? },
//     { "kind": "dynamic" | "volatile", "name", "shape", "dtype" },
//     { "kind": "volatile", "name", "shape", "dtype": "f32", "ref" | "pattern", "over"?, "from"? },
//       a table that every row finds as the file has it, and may write,
//     { "kind": "persistent", "name", "counter": true, "max"?: n, "clock"?: true },
//       a clock counts the tokens ever fed to the context, the row's own included. The engine moves it; it is no part
//       of the state,
//     { "kind": "persistent", "name", "dtype", "init",
//       "axes": [n | { "index": "l" } | { "ring": n, "counter" } | { "grows": counter }] } ],
//   "blocks": [{ "name", "inputs": [dynamic], "nodes": […] }],
//   "memory"?: how a decoder's list of slots is kept (external_memory.h)
// }
// node: { "op", "in": [operands], "out"?, "state"?: operand, … } | { "loop": "l", "from", "to", "nodes" }
//     | { "branch": value, "nodes", "otherwise"? } | { "branch": "l", "equals": n, … } | { "branch": "a", … }
//     | { "return": { role: name } }
// operand: "x", "W(l)", "K(l,len-1)": a name, and in brackets the terms that pick a member: numbers, indices, counters,
// i32 values.
//
// A block "first", without inputs, runs once when the model is loaded. The persistents as it leaves them are the first
// state of every context.
//
// Shapes are those of one row (one token); an executor runs many rows at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/type.h"
#include "graph/elementwise.h"
#include "graph/external_memory.h"
#include "graph/forms.h"
#include "graph/perspective.h"
#include "weights/storage.h"
#include "weights/view.h"

namespace continuo {

enum class Kind : uint8_t { constant, dynamic, persistent, volatile_ };
// In the order of the op table (ops.cc).
enum class Op : uint8_t {
  embed,
  matmul,
  norm,
  rmsnorm,
  unit,
  l2norm,
#define CONTINUO_OP(name, cost) name,
  CONTINUO_BINARY_OPS(CONTINUO_OP) CONTINUO_UNARY_OPS(CONTINUO_OP)
#undef CONTINUO_OP
      lerp,
  range,
  clamp,
  bonus,
  slice,
  repeat,
  cast,
  less,
  equal,
  remainder,
  scale,
  softmax,
  normalise,
  topk,
  gather,
  routed,
  combine,
  torus,
  nearest,
  experts,
  experts_ahead,
  project,
  whole,
  adapter,
  rope,
  attend,
  attend_weights,
  cache_shift,
  cache_conv,
  cache_wkv7,
  cache_ssm,
  cache_pdr,
  cache_ngram,
  cache_ngram_first,
  cache_attend,
  cache_memory,
  cache_memory_first,
  cache_mix,
  cache_recall,
  cache_read,
  cache_write,
  cache_increment,
  cache_decrement,
  cache_reset,
  loop,
  branch,
  return_,
};

const char* name_of(Kind kind);

using Index = uint32_t;  // into Graph::indices

// The bound of a counter without a max: up to here a double represents every whole number.
constexpr uint64_t unbounded = uint64_t{1} << 53;

// One axis of a persistent table.
struct Axis {
  enum class Kind : uint8_t { fixed, index, ring, grows };
  Kind kind = Kind::fixed;
  uint64_t extent = 1;     // elements along the axis; grows: the bound of its counter
  Name counter = no_name;  // ring, grows: the counter whose value is the number of positions written so far
};

struct Declaration {
  Kind kind{};
  std::string name;
  std::vector<uint64_t> shape;  // of one row; constant: of one member; persistent: a growing axis has extent 0
  Type type = Type::f32;

  // Constants.
  Layout layout{};
  // The name in the file. In a family "{l}" stands for the number of the member, in a stack "{e}" for that of a matrix.
  std::string tensor;
  Index over = no_name;     // the index that numbers a family's members
  uint64_t from = 0;        // number of the first member
  bool transposed = false;  // packed: the file has [inputs, outputs]
  int64_t row = -1;         // vector: the row of a larger tensor to take; −1: the whole tensor
  Storage storage = Storage::plain;
  std::string scales;  // storage other than plain: the tensor of the scales
  uint32_t group = 0;  // storage other than plain: elements that share a scale
  View view, columns;  // which rows of the tensor, and which inputs of a packed matrix
  Map map = Map::none;

  // Persistents. Also of a volatile table: the index that numbers its members, where it is a family, then `shape`.
  std::vector<Axis> axes;
  double init = 0;
  bool counter = false;
  bool clock = false;  // the counter is the context's clock
  // Not in a snapshot: the memory controller makes it anew from the rest of the state.
  bool derived = false;
  // Of a table that grows: positions of a block of it, a power of two. Nodes read blocks of 256 only.
  uint64_t block = most_block;
  static constexpr uint64_t most_block = 256;
  uint64_t bound = 0;  // of a counter: its largest value

  uint64_t elements() const {
    uint64_t n = 1;
    for (const auto extent : shape) n *= extent;
    return n;
  }
  // How many axes grow.
  size_t growing() const {
    size_t n = 0;
    for (const auto& axis : axes) n += axis.kind == Axis::Kind::grows;
    return n;
  }
  // Whether it is a volatile table: a volatile that is bound to tensors of the file.
  bool volatile_table() const { return kind == Kind::volatile_ && !tensor.empty(); }
};

// The index along one axis: `offset`, plus the loop index, counter or i32 value where there is one.
struct Term {
  enum class Kind : uint8_t { number, index, counter, value };
  Kind kind = Kind::number;
  uint32_t id = 0;  // Index or Name
  int64_t offset = 0;
};

struct Operand {
  Name name = no_name;
  std::vector<Term> at;
};

struct Node {
  Op op{};
  std::vector<Operand> in;
  Name out = no_name;
  std::optional<Operand> state;
  uint32_t groups = 1;  // heads
  uint32_t shared = 1;  // attend: query heads that share one key head
  float eps = 0;
  float scale = 0;            // attend; scale: the factor; project: the inflation
  uint64_t from = 0, to = 0;  // slice; loop
  // less, equal, remainder: the right-hand side; increment, decrement: by how much; cache_read of a counter: modulo
  // what, or 0; branch: the index' value; topk, nearest: how many; project: sweeps
  int64_t number = 0;
  Type type = Type::f32;             // cast
  std::vector<float> low, high;      // range, clamp: per level
  uint32_t times = 1;                // repeat
  bool silu = true;                  // cache.conv: whether the sums go through silu
  bool convex = true;                // cache.pdr: whether what is written is weighed by 1 − γ
  bool learns_drawn = false;         // cache.ngram: whether it learns from tokens that were drawn, too
  std::vector<uint32_t> increments;  // rope: per pair of channels, from the first channel of a head on
  uint64_t segment = 0;              // cache.attend, cache.mix: segments of the clock; 0: none
  MemoryForm memory;                 // cache.memory, cache.memory.first
  std::vector<uint64_t> periods;     // the same: of each level, at least 1

  Index index = no_name;   // loop; branch on an index
  bool within = false;     // branch: taken where the index that `index` is a part of has one of its values
  std::vector<Node> body;  // loop; branch: then
  std::vector<Node> otherwise;
  std::vector<std::pair<std::string, Name>> results;  // return
};

// The number of levels that do not write at every pulse. Each has a buffer for the writes to come.
inline size_t slow_levels(const std::vector<uint64_t>& periods) {
  size_t n = 0;
  for (const auto period : periods) n += period > 1;
  return n;
}

// Whether it is the memory of a model whose tokens stand for bytes: the engine must know which.
inline bool reads_subwords(const Node& node) { return node.op == Op::cache_ngram && node.in.size() == 5; }

// Whether the node depends on the clock by itself, not only through the tables and counters that it names.
inline bool uses_clock(const Node& node) {
  return node.segment > 0 || (node.op == Op::cache_memory && slow_levels(node.periods) > 0);
}

struct Block {
  std::string name;
  std::vector<Name> inputs;
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, Name>> results;
};

struct Indexed {
  std::string name;
  uint64_t extent;
  // A part of another index: it numbers those values of `of` that stand in `at`, ascending. Members of a family over it
  // have these values in their tensors' names.
  Index of = no_name;
  std::vector<uint64_t> at;

  // What stands for the index' value in the name of a tensor.
  uint64_t number(uint64_t value) const { return of == no_name ? value : at[value]; }
};

// A graph with these two blocks is a language model: "step" computes the last hidden vector from an i32 token,
// "predict" computes logits from a hidden vector.
struct LanguageModel {
  size_t step = 0, predict = 0;  // indices into Graph::blocks
  Name hidden = no_name;         // f32 [channels]
  Name previous = no_name;       // f32 [channels]: the hidden vector of the token before, by a cache.shift
  Name last = no_name;           // f32 [channels]: the persistent of that cache.shift
  Name logits = no_name;         // f32 [vocabulary]
  // What an external memory reads, where it is not `hidden`: f32 [channels], and the persistent of its cache.shift.
  Name inner = no_name, inner_last = no_name;
};

struct Graph {
  std::vector<Indexed> indices;
  std::vector<Declaration> declarations;
  std::vector<Block> blocks;
  std::optional<LanguageModel> language;
  Name clock = no_name;  // no_name where the graph declares no clock
  std::optional<ExternalMemory> memory;
  std::optional<Perspective> perspective;
  std::optional<size_t> again;  // index of block "again": the last layers once more, reading only
  std::optional<size_t> first;  // index of block "first"

  uint64_t width(Name name) const { return declarations[name].elements(); }
  uint64_t vocabulary() const { return language ? width(language->logits) : 0; }
  // The counter that a table is, or that one of its axes follows; no_name where there is none.
  Name followed(Name table) const {
    const auto& d = declarations[table];
    if (d.counter) return table;
    for (const auto& axis : d.axes) {
      if (axis.counter != no_name) return axis.counter;
    }
    return no_name;
  }
  // The same, for a table that grows along several counters too.
  void each_followed(Name table, const auto& visit) const {
    const auto& d = declarations[table];
    if (d.counter) visit(table);
    for (const auto& axis : d.axes) {
      if (axis.counter != no_name) visit(axis.counter);
    }
  }
};

// An operand as the graph's text has it: "K(l,len-1)".
std::string operand_text(const Graph& graph, const Operand& operand);
// The name of a node in errors and traces: its op and the name that it writes.
// Whether one of its nodes does: reads_subwords(node).
bool reads_subwords(const Graph& graph);
std::string node_text(const Graph& graph, const Node& node);

// Reads a graph and checks it with check_graph() (check.h).
Result<Graph> parse_graph(std::string_view json);

}  // namespace continuo
