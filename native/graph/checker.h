// Checks the operands of a node: kinds, layouts, dtypes and shapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/ops.h"
#include "weights/safetensors.h"

namespace continuo {

// Checks one node. Each `need_…` states a requirement; the first that is not met becomes the error.
class Checker {
 public:
  Checker(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  const Declaration& in(size_t i) const { return graph_.declarations[node_.in[i].name]; }
  const std::vector<uint64_t>& shape(size_t i) const { return in(i).shape; }
  const Declaration& state() const { return graph_.declarations[node_.state->name]; }

  // Input i is a value of the row: volatile or dynamic.
  void need_row(size_t i) {
    const auto& d = in(i);
    if (d.kind == Kind::persistent)
      fail("input \"", d.name, "\" is persistent; only cache operations touch it, through \"state\"");
    else if (d.kind == Kind::constant)
      fail("input \"", d.name, "\" is constant, expected a value of the row");
    else if (d.volatile_table())
      fail("input \"", d.name, "\" is a volatile table, expected a value of the row: cache.read reads a table");
    else if (!node_.in[i].at.empty())
      fail("input \"", operand_text(graph_, node_.in[i]), "\" picks a member of a value, which has none");
  }
  void need_type(size_t i, Type type) {
    need_row(i);
    if (ok() && in(i).type != type)
      fail("input \"", in(i).name, "\" is ", name_of(in(i).type), ", expected ", name_of(type), ": cast it");
  }
  // An f32 vector of the row.
  void need_vector(size_t i) {
    need_type(i, Type::f32);
    if (ok() && shape(i).size() != 1)
      fail("input \"", in(i).name, "\" has shape ", shape_text(shape(i)), ", expected one dimension");
  }

  void need_constant(size_t i, Layout layout, const char* what) {
    const auto& d = in(i);
    if (d.kind != Kind::constant || d.layout != layout) return fail("input \"", d.name, "\" must be ", what);
    const bool family = d.over != no_name;
    if (node_.in[i].at.size() != (family ? 1u : 0u)) {
      fail("input \"", operand_text(graph_, node_.in[i]),
           family ? "\" must pick one member of the family" : "\" picks a member of a single tensor");
    } else if (family && node_.in[i].at[0].kind != Term::Kind::number && node_.in[i].at[0].kind != Term::Kind::index) {
      fail("input \"", operand_text(graph_, node_.in[i]),
           "\": a family's member is picked by a number or a loop's index");
    }
  }

  void need_shape(size_t i, const std::vector<uint64_t>& expected) {
    if (shape(i) != expected)
      fail("input \"", in(i).name, "\" has shape ", shape_text(shape(i)), ", expected ", shape_text(expected));
  }

  // A value or a constant vector broadcast over the rows.
  void need_operand(size_t i, const std::vector<uint64_t>& expected) {
    if (in(i).kind == Kind::constant)
      need_constant(i, Layout::vector, "a constant vector or a value of the row");
    else
      need_type(i, Type::f32);
    if (ok()) need_shape(i, expected);
  }

  void need_groups(uint64_t width) {
    if (ok() && (node_.groups == 0 || width % node_.groups != 0))
      fail("cannot split ", width, " channels into ", node_.groups, " groups");
  }

  // Query heads over `width` channels, of which `shared` use one key head.
  void need_heads(uint64_t width) {
    need_groups(width);
    if (ok() && (node_.shared == 0 || node_.groups % node_.shared != 0))
      fail("cannot share ", node_.groups, " heads by ", node_.shared);
  }

  // Extents of the axes that are left of a persistent once `operand` has picked a member; a growing axis has extent 0.
  std::vector<uint64_t> picked(const Operand& operand) {
    const auto& d = graph_.declarations[operand.name];
    if (d.kind != Kind::persistent && !d.volatile_table()) {
      fail("state \"", d.name, "\" is ", name_of(d.kind), ", expected persistent");
      return {};
    }
    const bool family = d.volatile_table() && d.over != no_name;
    if (d.volatile_table()) need_volatile_table(operand);
    if (operand.at.size() > d.axes.size()) {
      fail("state \"", operand_text(graph_, operand), "\" picks along ", operand.at.size(), " axes, but there are ",
           d.axes.size());
      return {};
    }
    for (size_t i = 0; i < operand.at.size(); ++i) {
      const auto& term = operand.at[i];
      if (term.kind == Term::Kind::value) {
        const auto& value = graph_.declarations[term.id];
        if (value.type != Type::i32 || value.elements() != 1 ||
            (value.kind != Kind::volatile_ && value.kind != Kind::dynamic)) {
          fail("state \"", operand_text(graph_, operand), "\": \"", value.name,
               "\" is no i32 value of the row to pick a member by");
        }
      } else if (term.kind == Term::Kind::counter && d.axes[i].counter != no_name && d.axes[i].counter != term.id) {
        fail("state \"", operand_text(graph_, operand), "\": that axis follows the counter \"",
             graph_.declarations[d.axes[i].counter].name, "\"");
      }
    }
    if (!ok()) return {};
    return {d.shape.begin() + static_cast<ptrdiff_t>(operand.at.size() - family), d.shape.end()};
  }

  // A persistent table, picked down to this shape.
  void need_table(size_t i, const std::vector<uint64_t>& expected, Type type) {
    const auto& operand = node_.in[i];
    const auto rest = picked(operand);
    if (!ok()) return;
    if (rest != expected)
      fail("input \"", operand_text(graph_, operand), "\" has shape ", shape_text(rest), ", expected ",
           shape_text(expected));
    else if (in(i).type != type)
      fail("input \"", in(i).name, "\" is ", name_of(in(i).type), ", expected ", name_of(type));
  }

  // What may touch a volatile table, and how it names a member.
  void need_volatile_table(const Operand& operand) {
    const auto& d = graph_.declarations[operand.name];
    constexpr Op ops[] = {Op::cache_read,  Op::cache_write, Op::cache_reset, Op::cache_recall,
                          Op::cache_shift, Op::cache_conv,  Op::cache_wkv7,  Op::cache_ssm};
    if (!node_.state || &operand != &*node_.state ||
        std::find(std::begin(ops), std::end(ops), node_.op) == std::end(ops))
      fail("\"", d.name,
           "\" is a volatile table, which only cache.read, cache.write, cache.reset, cache.recall, "
           "cache.shift, cache.conv, cache.wkv7 and cache.ssm touch, as their state");
    else if (d.over != no_name && (operand.at.empty() || (operand.at[0].kind != Term::Kind::number &&
                                                          operand.at[0].kind != Term::Kind::index)))
      fail("state \"", operand_text(graph_, operand),
           "\" must pick one member of the family, by a number or a loop's index");
  }

  void need_state(const std::vector<uint64_t>& expected, Type type) {
    const auto rest = picked(*node_.state);
    if (!ok()) return;
    if (rest != expected)
      fail("state \"", operand_text(graph_, *node_.state), "\" has shape ", shape_text(rest), ", expected ",
           shape_text(expected));
    else if (state().type != type)
      fail("state \"", state().name, "\" is ", name_of(state().type), ", expected ", name_of(type), ": cast it");
  }

  // Input i is a table of vectors along an axis that follows a counter: K(l) with axes [l, positions, channels], of f32
  // or, where `narrow` allows it, of f16 or bf16. Returns the counter.
  Name need_history(size_t i, uint64_t channels, bool narrow = false) {
    const auto rest = picked(node_.in[i]);
    if (!ok()) return no_name;
    const auto& d = in(i);
    const size_t axis = node_.in[i].at.size();
    if (d.growing() > 1) {
      fail("input \"", operand_text(graph_, node_.in[i]),
           "\" grows along several counters, expected a table that grows along one or is a ring");
    } else if (rest.size() != 2 || d.axes[axis].counter == no_name) {
      fail("input \"", operand_text(graph_, node_.in[i]),
           "\" must leave two axes: one that grows or is a ring, and the channels");
    } else if (rest[1] != channels ||
               (d.type != Type::f32 && !(narrow && (d.type == Type::f16 || d.type == Type::bf16)))) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" holds ", rest[1], " channels of ", name_of(d.type),
           ", expected ", channels, " of f32", narrow ? ", f16 or bf16" : "");
    } else {
      return d.axes[axis].counter;
    }
    return no_name;
  }

  // Like need_history, with a ring that follows the clock and has a place for each position of a segment.
  void need_ring(size_t i, uint64_t channels, uint64_t segment) {
    const Name counter = need_history(i, channels);
    if (!ok()) return;
    const auto& axis = in(i).axes[node_.in[i].at.size()];
    if (axis.kind != Axis::Kind::ring || counter != graph_.clock) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" must be a ring that follows the clock");
    } else if (segment > axis.extent) {
      fail("input \"", operand_text(graph_, node_.in[i]), "\" has ", axis.extent,
           " places, expected at least the segment's ", segment);
    }
  }

  // The ring of input i has as many places as that of input `other`.
  void need_places(size_t i, size_t other) {
    const uint64_t own = in(i).axes[node_.in[i].at.size()].extent,
                   expected = in(other).axes[node_.in[other].at.size()].extent;
    if (own != expected)
      fail("input \"", operand_text(graph_, node_.in[i]), "\" has ", own, " places, expected ", expected, " like \"",
           operand_text(graph_, node_.in[other]), "\"");
  }

  void need_counter() {
    const auto& d = state();
    if (d.kind != Kind::persistent || !d.counter || !node_.state->at.empty())
      fail("state \"", operand_text(graph_, *node_.state), "\" is no counter");
  }

  // A persistent in [levels, heads, n, n]; returns n.
  uint64_t need_memory(const Operand& operand, uint64_t levels, uint64_t heads) {
    const auto rest = picked(operand);
    if (!ok()) return 0;
    const auto& d = graph_.declarations[operand.name];
    if (rest.size() != 4 || rest[0] != levels || rest[1] != heads || rest[2] != rest[3] || rest[2] == 0 ||
        rest[2] > 256 || d.type != Type::f32) {
      fail("\"", operand_text(graph_, operand), "\" has shape ", shape_text(rest), " of ", name_of(d.type),
           ", expected [", levels, ", ", heads, ", n, n] of f32 with n at most 256");
      return 0;
    }
    return rest[2];
  }

  template <class... Parts> void fail(const Parts&... parts) {
    if (problem_.empty()) problem_ = text(parts...);
  }

  bool ok() const { return problem_.empty(); }

  Result<RowShape> finish(RowShape out) const {
    if (ok()) return out;
    return invalid("graph node ", node_text(graph_, node_), ": ", problem_, ".");
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::string problem_;
};

// Checks of single ops beyond the op table (ops.cc refers to them). Each may change `out`, the shape of the output,
// which is that of the first input before the call.
void check_embed(Checker& check, RowShape& out);
void check_matmul(Checker& check, RowShape& out);
void check_range(Checker& check, RowShape& out);
void check_slice(Checker& check, RowShape& out);
void check_repeat(Checker& check, RowShape& out);
void check_cast(Checker& check, RowShape& out);
void check_compare(Checker& check, RowShape& out);
void check_rope(Checker& check, RowShape& out);
void check_topk(Checker& check, RowShape& out);
void check_gather(Checker& check, RowShape& out);
void check_routed(Checker& check, RowShape& out);
void check_combine(Checker& check, RowShape& out);
void check_histories(Checker& check, RowShape& out);
void check_weights(Checker& check, RowShape& out);
void check_shift(Checker& check, RowShape& out);
void check_wkv7(Checker& check, RowShape& out);
void check_ssm(Checker& check, RowShape& out);
void check_read(Checker& check, RowShape& out);
void check_write(Checker& check, RowShape& out);
void check_count(Checker& check, RowShape& out);
void check_reset(Checker& check, RowShape& out);
// check_memory.cc
void check_conv(Checker& check, RowShape& out);
void check_rings(Checker& check, RowShape& out);
void check_memory(Checker& check, RowShape& out);
void check_memory_first(Checker& check, RowShape& out);
void check_mix(Checker& check, RowShape& out);
void check_recall(Checker& check, RowShape& out);
void check_pdr(Checker& check, RowShape& out);
void check_ngram(Checker& check, RowShape& out);
void check_ngram_first(Checker& check, RowShape& out);
void check_torus(Checker& check, RowShape& out);
void check_nearest(Checker& check, RowShape& out);
void check_experts(Checker& check, RowShape& out);
void check_experts_ahead(Checker& check, RowShape& out);
void check_project(Checker& check, RowShape& out);
void check_whole(Checker& check, RowShape& out);
void check_adapter(Checker& check, RowShape& out);

}  // namespace continuo
