#include "graph.h"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "json.h"
#include "ops.h"
#include "safetensors.h"

namespace continuo {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::constant: return "constant";
    case Kind::dynamic: return "dynamic";
    case Kind::persistent: return "persistent";
    case Kind::volatile_: return "volatile";
  }
  return "unknown";
}

namespace {

using json::Value;

// Generous for any model; small enough that sizes in bytes never overflow 64 bits.
constexpr uint64_t max_extent = uint64_t{1} << 31;
constexpr uint64_t max_elements = uint64_t{1} << 40;

class Reader {
 public:
  explicit Reader(const Value& root) : root_(root) {}

  Result<Graph> read() {
    const auto* format = root_.find("format");
    if (!format || !format->is_string() || format->text != "continuo-graph/1") return invalid("graph: expected the format \"continuo-graph/1\".");
    if (!declarations() || !blocks() || !ends()) return *error_;
    return std::move(graph_);
  }

 private:
  template <class... Parts>
  bool fail(const Parts&... parts) {
    error_ = invalid("graph: ", parts...);
    return false;
  }
  bool fail(const Error& error) {
    error_ = error;
    return false;
  }

  static const std::string* text_of(const Value& object, const char* name) {
    const auto* value = object.find(name);
    return value && value->is_string() ? &value->text : nullptr;
  }

  bool declarations() {
    const auto* list = root_.find("declarations");
    if (!list || !list->is_array()) return fail("declarations are missing.");
    for (const auto& item : list->items) {
      Declaration d;
      if (!declaration(item, d)) return false;
      if (!names_.emplace(d.name, graph_.declarations.size()).second) return fail("\"", d.name, "\" is declared twice.");
      graph_.declarations.push_back(std::move(d));
    }
    return true;
  }

  bool declaration(const Value& item, Declaration& d) {
    const auto* name = text_of(item, "name");
    const auto* kind = text_of(item, "kind");
    if (!name || name->empty() || !kind) return fail("a declaration lacks its name or kind.");
    d.name = *name;
    if (*kind == "constant") d.kind = Kind::constant;
    else if (*kind == "dynamic") d.kind = Kind::dynamic;
    else if (*kind == "persistent") d.kind = Kind::persistent;
    else if (*kind == "volatile") d.kind = Kind::volatile_;
    else return fail("\"", d.name, "\" has the unknown kind \"", *kind, "\".");

    const auto* shape = item.find("shape");
    if (!shape || !shape->is_array()) return fail("\"", d.name, "\" has no shape.");
    uint64_t elements = 1;
    for (const auto& extent : shape->items) {
      const auto n = extent.as_u64();
      if (!n || *n == 0 || *n > max_extent || elements > max_elements / *n) return fail("\"", d.name, "\" has a shape that is not a list of sensible whole numbers.");
      elements *= *n;
      d.shape.push_back(*n);
    }
    switch (d.kind) {
      case Kind::constant: return constant(item, d);
      case Kind::dynamic: return dynamic(item, d);
      case Kind::persistent: return persistent(item, d);
      case Kind::volatile_: return true;
    }
    return true;
  }

  bool constant(const Value& item, Declaration& d) {
    const auto* tensor = text_of(item, "tensor");
    const auto* layout = text_of(item, "layout");
    if (!tensor || tensor->empty() || !layout) return fail("constant \"", d.name, "\" lacks its tensor or layout.");
    d.tensor = *tensor;
    if (*layout == "packed") d.layout = Layout::packed;
    else if (*layout == "rows") d.layout = Layout::rows;
    else if (*layout == "vector") d.layout = Layout::vector;
    else return fail("constant \"", d.name, "\" has the unknown layout \"", *layout, "\".");
    if (d.shape.size() != (d.layout == Layout::vector ? 1u : 2u)) return fail("constant \"", d.name, "\" has shape ", shape_text(d.shape), ", which its layout cannot hold.");
    if (const auto* transposed = item.find("transposed")) d.transposed = transposed->boolean;
    if (d.transposed && d.layout != Layout::packed) return fail("constant \"", d.name, "\" is transposed, which only the layout packed supports.");
    if (const auto* row = item.find("row")) {
      const auto n = row->as_u64();
      if (!n || *n > max_extent || d.layout != Layout::vector) return fail("constant \"", d.name, "\" names a row that cannot be taken.");
      d.row = static_cast<int64_t>(*n);
    }
    return true;
  }

  bool dynamic(const Value& item, Declaration& d) {
    const auto* dtype = text_of(item, "dtype");
    if (!dtype || (*dtype != "i32" && *dtype != "f32")) return fail("dynamic \"", d.name, "\" needs dtype i32 or f32.");
    d.integer = *dtype == "i32";
    return true;
  }

  bool persistent(const Value& item, Declaration& d) {
    const auto* init = item.find("init");
    const auto value = init ? init->as_double() : std::optional<double>(0);
    if (!value || !std::isfinite(static_cast<float>(*value))) return fail("persistent \"", d.name, "\" needs a finite init.");
    d.init = static_cast<float>(*value);
    return true;
  }

  bool look_up(const std::string& user, const std::string& name, Name& out) {
    const auto found = names_.find(name);
    if (found == names_.end()) return fail(user, " uses \"", name, "\", which is not declared.");
    out = static_cast<Name>(found->second);
    return true;
  }

  bool blocks() { return block("step", graph_.step) && block("predict", graph_.predict); }

  bool block(const char* name, Block& out) {
    const auto* body = root_.find(name);
    const auto* inputs = body ? body->find("inputs") : nullptr;
    const auto* nodes = body ? body->find("nodes") : nullptr;
    if (!inputs || !inputs->is_array() || inputs->items.size() != 1 || !inputs->items[0].is_string()) return fail("block \"", name, "\" needs exactly one input.");
    if (!nodes || !nodes->is_array()) return fail("block \"", name, "\" has no nodes.");
    out.name = name;
    if (!look_up(text("block \"", name, "\""), inputs->items[0].text, out.input)) return false;
    if (graph_.declarations[out.input].kind != Kind::dynamic) return fail("block \"", name, "\": its input must be dynamic.");
    std::unordered_set<Name> written{out.input};
    for (const auto& item : nodes->items) {
      Node node;
      if (!read_node(item, node) || !order(node, written)) return false;
      out.nodes.push_back(std::move(node));
    }
    return true;
  }

  bool read_node(const Value& item, Node& node) {
    const auto* name = text_of(item, "name");
    const auto* op = text_of(item, "op");
    const auto* in = item.find("in");
    const auto* out = text_of(item, "out");
    if (!name || !op || !in || !in->is_array() || !out) return fail("a node lacks its name, op, in or out.");
    node.name = *name;
    const std::string user = text("node \"", *name, "\"");
    const auto* rule = find_op(*op);
    if (!rule) return fail(user, " has the unknown op \"", *op, "\".");
    node.op = rule->op;
    if (in->items.size() != rule->inputs) return fail(user, " (", *op, ") has ", in->items.size(), " inputs, expected ", rule->inputs, ".");
    for (const auto& input : in->items) {
      Name index = 0;
      if (!look_up(user, input.text, index)) return false;
      node.in.push_back(index);
    }
    if (!look_up(user, *out, node.out)) return false;
    if (rule->stateful) {
      const auto* state = text_of(item, "state");
      if (!state) return fail(user, " (", *op, ") needs a state.");
      if (!look_up(user, *state, node.state)) return false;
    }
    if (rule->grouped) {
      const auto* groups = item.find("groups");
      const auto n = groups ? groups->as_u64() : std::nullopt;
      if (!n || *n == 0 || *n > max_extent) return fail(user, " (", *op, ") needs a number of groups.");
      node.groups = static_cast<uint32_t>(*n);
    }
    if (rule->has_eps) {
      const auto* eps = item.find("eps");
      const auto value = eps ? eps->as_double() : std::nullopt;
      node.eps = value ? static_cast<float>(*value) : 0.0f;
      if (!(node.eps > 0) || !std::isfinite(node.eps)) return fail(user, " (", *op, ") needs a positive eps that f32 can hold.");
    }
    return true;
  }

  // Use before definition, double definition, writes to what must not be written, and the shapes.
  bool order(const Node& node, std::unordered_set<Name>& written) {
    for (const Name input : node.in) {
      const auto& d = graph_.declarations[input];
      if (d.kind == Kind::persistent) return fail("node \"", node.name, "\" reads persistent \"", d.name, "\"; only cache operations touch it, through \"state\".");
      if (d.kind != Kind::constant && !written.contains(input)) return fail("node \"", node.name, "\" uses \"", d.name, "\" before anything wrote it.");
    }
    const auto& out = graph_.declarations[node.out];
    if (out.kind != Kind::volatile_) return fail("node \"", node.name, "\" writes ", name_of(out.kind), " \"", out.name, "\"; only volatile memory can be written.");
    if (!ever_written_.insert(node.out).second) return fail("node \"", node.name, "\" writes \"", out.name, "\" a second time.");
    written.insert(node.out);
    auto shape = check_node(graph_, node);
    if (!shape) return fail(shape.error());
    if (*shape != out.shape) return fail("node \"", node.name, "\" gives shape ", shape_text(*shape), ", but \"", out.name, "\" is declared ", shape_text(out.shape), ".");
    // One node per table: with two, the second would see what the first wrote for later rows of the same step.
    if (rule_of(node.op).stateful && !states_.insert(node.state).second) {
      return fail("node \"", node.name, "\" uses persistent \"", graph_.declarations[node.state].name, "\", which another node already owns.");
    }
    return true;
  }

  bool ends() {
    const auto output = [&](const char* block, const char* role, Name& out) {
      const auto* name = text_of(*root_.find(block), role);
      if (!name) return fail("block \"", block, "\" does not name its ", role, ".");
      return look_up(text("block \"", block, "\""), *name, out);
    };
    if (!output("step", "hidden", graph_.hidden) || !output("step", "previous", graph_.previous) || !output("predict", "logits", graph_.logits)) return false;
    const Node* shift = nullptr;
    for (const auto& node : graph_.step.nodes) {
      if (node.out == graph_.previous) shift = &node;
    }
    if (!shift || shift->op != Op::cache_shift || shift->in[0] != graph_.hidden) return fail("\"previous\" must be the cache.shift of \"hidden\".");
    graph_.last = shift->state;
    const auto& input = graph_.declarations[graph_.predict.input];
    if (input.integer || input.shape != graph_.declarations[graph_.hidden].shape) return fail("the input of block \"predict\" must have the shape of \"hidden\".");
    if (!graph_.declarations[graph_.step.input].integer) return fail("the input of block \"step\" must be the i32 token id.");
    bool made = false;
    for (const auto& node : graph_.predict.nodes) {
      if (rule_of(node.op).stateful) return fail("node \"", node.name, "\": block \"predict\" must not touch persistent memory.");
      made = made || node.out == graph_.logits;
    }
    if (!made) return fail("no node of block \"predict\" writes its logits.");
    // Ids are checked against the number of logits, and sampled ids come from there.
    for (const auto& node : graph_.step.nodes) {
      if (node.op != Op::embed) continue;
      const auto rows = graph_.declarations[node.in[1]].shape[0];
      if (rows < graph_.vocabulary()) return fail("node \"", node.name, "\" looks ids up in a table of ", rows, " rows, but there are ", graph_.vocabulary(), " logits.");
    }
    for (const auto& d : graph_.declarations) {
      const auto index = static_cast<Name>(names_.at(d.name));
      if (d.kind == Kind::persistent && !states_.contains(index)) return fail("persistent \"", d.name, "\" is used by no node.");
    }
    return true;
  }

  const Value& root_;
  Graph graph_;
  std::unordered_map<std::string, size_t> names_;
  std::unordered_set<Name> ever_written_;
  std::unordered_set<Name> states_;
  std::optional<Error> error_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view source) {
  auto root = json::parse(source);
  if (!root) return invalid("graph: ", root.error().message);
  return Reader(*root).read();
}

}  // namespace continuo
