// A model as data: declared memory, then two blocks of operations. TypeScript builds it (src/engine/graph.ts), JSON carries
// it, and nothing runs before `parse_graph` has checked every name, kind and shape.
//
// {
//   "format": "continuo-graph/1",
//   "declarations": [
//     { "kind": "constant",   "name", "shape", "layout": "packed" | "rows" | "vector",
//       "tensor": "<name in the file>", "transposed"?: bool, "row"?: n },
//     { "kind": "dynamic",    "name", "shape", "dtype": "i32" | "f32" },
//     { "kind": "persistent", "name", "shape", "init": number },
//     { "kind": "volatile",   "name", "shape" } ],
//   "step":    { "inputs": [token], "nodes": […], "hidden": name, "previous": name },
//   "predict": { "inputs": [hidden], "nodes": […], "logits": name }
// }
// node: { "op", "name", "in": [names], "out": name, "state"?: persistent, "groups"?: n, "eps"?: number }
//
// Shapes are those of one row (one token); an executor runs many rows at once. The block `step` turns a token into the
// last hidden vector; `previous` must come from the cache.shift that keeps that vector from one token to the next. The
// block `predict` turns such a vector into logits. Persistent memory is touched only by cache nodes, each table by one node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "result.h"

namespace continuo {

enum class Kind : uint8_t { constant, dynamic, persistent, volatile_ };
enum class Layout : uint8_t { packed, rows, vector };
enum class Op : uint8_t { embed, norm, matmul, add, mul, lerp, tanh, sigmoid, relu2, decay, l2norm, bonus, cache_shift, cache_wkv7 };

const char* name_of(Kind kind);

struct Declaration {
  Kind kind;
  std::string name;
  std::vector<uint64_t> shape;
  bool integer = false;      // dynamic: i32 token ids, else f32
  Layout layout{};           // constant
  std::string tensor;        // constant: its name in the file
  bool transposed = false;   // constant, packed: the file holds [inputs, outputs]
  int64_t row = -1;          // constant, vector: one row of a larger tensor
  float init = 0;            // persistent: the first value of every element

  uint64_t elements() const {
    uint64_t n = 1;
    for (const auto extent : shape) n *= extent;
    return n;
  }
};

using Name = uint32_t;  // index into Graph::declarations

struct Node {
  Op op;
  std::string name;
  std::vector<Name> in;
  Name out = 0;
  Name state = 0;  // cache ops
  uint32_t groups = 1;
  float eps = 0;
};

struct Block {
  std::string name;
  Name input = 0;
  std::vector<Node> nodes;
};

struct Graph {
  std::vector<Declaration> declarations;
  Block step;
  Block predict;
  Name hidden = 0;    // step: the last hidden vector
  Name previous = 0;  // step: the one before it, out of cache.shift
  Name last = 0;      // persistent: where cache.shift keeps it
  Name logits = 0;    // predict

  uint64_t width(Name name) const { return declarations[name].elements(); }
  uint64_t vocabulary() const { return width(logits); }
};

Result<Graph> parse_graph(std::string_view json);

}  // namespace continuo
