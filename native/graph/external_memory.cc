#include "graph/external_memory.h"

#include <cmath>
#include <string_view>

#include "graph/graph.h"
#include "graph/node_attributes.h"
#include "weights/tensor.h"

namespace continuo {

namespace {

using json::Value;

constexpr uint64_t most_tokens = uint64_t{1} << 24;  // of a block, a window, a list
constexpr size_t most_layers = 4096;

class MemoryReader {
 public:
  MemoryReader(const Value& root, const Graph& graph) : root_(root), graph_(graph) {}

  Result<ExternalMemory> read() {
    static const Value empty;
    const auto part = [&](const char* name) -> const Value& {
      const auto* found = root_.find(name);
      return found ? *found : empty;
    };
    const Value &anchors = part("anchors"), &topics = part("segmentation"), &tombs = part("tombstones"),
                &retrieval = part("retrieval"), &tokens = part("tokens");
    whole(root_, "block_size", 4, 4096, out_.block);
    whole(root_, "window", 2 * out_.block, most_tokens, out_.window);
    whole(root_, "sinks", 0, out_.block, out_.sinks);
    out_.kept = dtype("kv_dtype", {Type::f32, Type::f16, Type::bf16});
    out_.cold = dtype("cold_dtype", {Type::f8, Type::f16, Type::f32});
    whole(anchors, "tokens", 0, out_.block, out_.anchor_tokens);
    whole(anchors, "entries", 0, 4096, out_.anchor_entries);
    const auto* kept_anchors = anchors.text_of("policy");
    if (!kept_anchors || !read_word(*kept_anchors, {{"segment", false}, {"trimmer", true}}, out_.trimmed_anchors))
      fail("needs the policy segment or trimmer of its anchors.");
    number(topics, "gamma", out_.gamma);
    number(topics, "rate", out_.segment_rate);
    whole(topics, "warmup", 0, most_tokens, out_.warmup);
    whole(topics, "min_blocks", 0, most_tokens, out_.least_blocks);
    whole(tombs, "count", 0, 4096, out_.tombstones);
    if (const auto* threshold = tombs.find("threshold"); threshold && threshold->as_double()) {
      out_.threshold = 0.0f;
      number(tombs, "threshold", *out_.threshold);
    }
    number(tombs, "rate", out_.monitor_rate);
    whole(tombs, "cooldown", 0, unbounded, out_.cooldown);
    whole(retrieval, "every", 0, most_tokens, out_.every);
    whole(retrieval, "blocks", 1, 4096, out_.most);
    number(retrieval, "rate", out_.query_rate);
    uint64_t later = 0;
    whole(retrieval, "inject_after", 0, 1, later);
    out_.inject_later = later == 1;
    const auto* policy = retrieval.text_of("policy");
    using enum ExternalMemory::Policy;
    if (!policy || !read_word(*policy, {{"recent", recent}, {"similar", similar}, {"graph", graph}}, out_.policy))
      fail("needs the policy recent, similar or graph.");
    const auto* similarity = retrieval.text_of("similarity");
    if (!similarity || (*similarity != "dot" && *similarity != "cosine"))
      fail("needs the similarity dot or cosine.");
    else
      out_.cosine = *similarity == "cosine";
    whole(root_, "summarize_keep", 0, most_tokens, out_.summarize_keep);
    out_.summarize = id(tokens, "summarize");
    out_.retrieve = id(tokens, "retrieve");
    whole(root_, "heads", 1, 65536, out_.heads);
    whole(root_, "key_heads", 1, 65536, out_.key_heads);
    read_increments();
    read_modules();
    if (!error_ && out_.trimmed_anchors && out_.trimmer == 0) fail("has no trimmer that chooses its anchors.");
    if (!error_ && (out_.window % out_.block != 0 || out_.sinks + out_.anchor_tokens > out_.block ||
                    out_.every % out_.block != 0 || out_.heads % out_.key_heads != 0))
      fail("needs a window and a period of whole blocks, sinks and anchors that fit into one, and heads that divide.");
    if (!error_) find_names();
    layers(tombs, out_.watched);
    layers(retrieval, out_.index_layers);
    if (!error_) check_shapes();
    if (error_) return *error_;
    return std::move(out_);
  }

 private:
  template <class... Parts> void fail(const Parts&... parts) {
    if (!error_) error_ = invalid("graph: its memory ", parts...);
  }

  template <class T> void whole(const Value& object, const char* member, uint64_t least, uint64_t most, T& out) {
    auto n = read_number(object, member, least, most);
    if (!n) return fail(n.error().message);
    out = static_cast<T>(*n);
  }

  void number(const Value& object, const char* member, float& out) {
    const auto* found = object.find(member);
    const auto value = found ? found->as_double() : std::nullopt;
    if (!value || !std::isfinite(static_cast<float>(*value))) return fail("needs a number \"", member, "\".");
    out = static_cast<float>(*value);
  }

  Type dtype(const char* member, std::initializer_list<Type> allowed) {
    const auto* name = root_.text_of(member);
    const auto found = name ? type_named(*name) : std::nullopt;
    for (const Type type : allowed) {
      if (found == type) return type;
    }
    fail("has a \"", member, "\" that is none of its dtypes.");
    return Type::f32;
  }

  // A member that is an object; null where it is not there, or null.
  const Value* object(const char* member) {
    const auto* found = root_.find(member);
    return found && found->is_object() ? found : nullptr;
  }

  void read_modules() {
    constexpr uint64_t widest = 1 << 16;
    if (const auto* item = object("trimmer")) whole(*item, "width", 1, widest, out_.trimmer);
    if (const auto* item = object("projector")) whole(*item, "width", 1, widest, out_.projector);
    if (const auto* item = object("qformer")) {
      auto& q = out_.qformer.emplace();
      whole(*item, "layers", 1, 256, q.layers);
      whole(*item, "heads", 1, 256, q.heads);
      whole(*item, "width", 1, widest, q.width);
      whole(*item, "queries", 1, 4096, q.queries);
      if (!error_ && q.width % q.heads != 0) fail("has a Q-Former whose heads do not divide its width.");
    }
    if (const auto* item = object("graph")) {
      auto& t = out_.topics.emplace();
      whole(*item, "max_virtual", 1, 4096, t.most_virtual);
      number(*item, "new_distance", t.new_distance);
      number(*item, "drift_min", t.least_drift);
      number(*item, "split_variance", t.split_variance);
      whole(*item, "split_min", 2, most_tokens, t.split_least);
      whole(*item, "split_iterations", 1, 1024, t.split_iterations);
      number(*item, "merge_distance", t.merge_distance);
      whole(*item, "fan", 1, 65536, t.fan);
      whole(*item, "max_hops", 1, 65536, t.most_hops);
      whole(*item, "walker_width", 1, widest, t.walker_width);
    }
    if (out_.qformer.has_value() != (out_.projector > 0)) fail("has a Q-Former or a projector without the other.");
    if (out_.policy == ExternalMemory::Policy::graph && !out_.topics) fail("has the policy graph without a graph.");
  }

  std::optional<int32_t> id(const Value& tokens, const char* member) {
    const auto* found = tokens.find(member);
    const auto n = found ? found->as_u64() : std::nullopt;
    if (!n) return std::nullopt;
    if (*n > INT32_MAX) fail("has the token id ", *n, ".");
    return static_cast<int32_t>(*n);
  }

  void read_increments() {
    const auto* list = root_.list_of("increments");
    if (!list || list->empty()) return fail("needs the increments of a head's pairs.");
    for (const auto& item : *list) {
      const auto n = item.as_u64();
      if (!n || *n > UINT32_MAX) return fail("has an increment that is no whole number below 2³².");
      out_.increments.push_back(static_cast<uint32_t>(*n));
    }
    out_.channels = 2 * out_.increments.size();
  }

  void layers(const Value& object, std::vector<uint32_t>& out) {
    const auto* list = object.list_of("layers");
    if (!list || list->empty() || list->size() > most_layers) return fail("needs its layers, ascending.");
    for (const auto& item : *list) {
      const auto n = item.as_u64();
      if (!n || *n >= out_.layers || (!out.empty() && *n <= out.back()))
        return fail("needs layers below ", out_.layers, ", ascending.");
      out.push_back(static_cast<uint32_t>(*n));
    }
  }

  Name find(std::string_view name, bool there = true) {
    if (!there) return no_name;
    for (Name i = 0; i < graph_.declarations.size(); ++i) {
      if (graph_.declarations[i].name == name && graph_.declarations[i].kind == Kind::persistent) return i;
    }
    fail("needs the persistent \"", name, "\".");
    return no_name;
  }

  void find_names() {
    auto& n = out_.names;
    const bool sinks = out_.sinks > 0, anchors = out_.anchors() > 0, tombs = out_.tombstones > 0;
    n.count = find("count"), n.archived = find("archived"), n.slots = find("slots");
    n.first_tombstone = find("tombstones.slot", tombs);
    n.list_k = find("list.k"), n.list_v = find("list.v");
    n.window_k = find("window.k"), n.window_v = find("window.v");
    n.asked = find("asked"), n.watched = find("watched", tombs && out_.threshold);
    n.sinks_k = find("sinks.k", sinks), n.sinks_v = find("sinks.v", sinks);
    n.entries = find("anchors.entries", anchors), n.anchor_block = find("anchors.block", anchors);
    n.anchor_offsets = find("anchors.offsets", anchors);
    n.anchors_k = find("anchors.k", anchors), n.anchors_v = find("anchors.v", anchors);
    n.tombs = find("tombstones", tombs), n.span = find("tombstones.span", tombs);
    n.attention = find("tombstones.e", tombs);
    n.tombs_k = find("tombstones.k", tombs), n.tombs_v = find("tombstones.v", tombs);
    n.cold = find("cold"), n.rows = find("closed"), n.index = find("index");
    n.injected = find("injections"), n.injected_blocks = find("injected");
    n.pending = find("pendings"), n.pending_blocks = find("pending");
    n.query = find("query");
    n.topic_sum = find("topic.sum"), n.topic_mean = find("topic.mean"), n.topic_spread = find("topic.spread");
    n.topic_blocks = find("topic.blocks"), n.topic_seen = find("topic.seen");
    n.last_retrieval = find("lastRetrieval"), n.version = find("indexVersion");
    n.trim_scores = find("trim.scores", out_.trimmer > 0);
    n.block_hidden = find("block.hidden", out_.qformer.has_value());
    const bool topics = out_.topics.has_value();
    n.center = find("graph.center", topics), n.center_count = find("graph.n", topics);
    n.center_spread = find("graph.s", topics), n.member = find("graph.member", topics);
    if (n.list_k != no_name && !graph_.declarations[n.list_k].axes.empty())
      out_.layers = graph_.declarations[n.list_k].axes[0].extent;
  }

  void need(Name name, const std::vector<uint64_t>& shape, Type type, Name follows = no_name) {
    if (name == no_name) return;
    const auto& d = graph_.declarations[name];
    if (d.shape != shape || d.type != type || (follows != no_name && graph_.followed(name) != follows))
      fail("needs \"", d.name, "\" in the shape ", shape_text(shape), " of ", name_of(type), ".");
  }

  void check_shapes() {
    const auto& n = out_.names;
    const uint64_t L = out_.layers, C = out_.kv(), B = out_.block, M = out_.window, S = out_.sinks,
                   K = out_.anchor_tokens, A = out_.anchor_entries, T = out_.tombstones, Li = out_.index_layers.size();
    const Type kv = out_.kept;
    for (const Name name : {n.list_k, n.list_v}) need(name, {L, 0, C}, Type::f32, n.slots);
    for (const Name name : {n.window_k, n.window_v}) need(name, {L, M, C}, kv, n.count);
    need(n.asked, {Li, B, out_.heads * out_.channels}, Type::f32, n.count);
    need(n.watched, {out_.watched.size(), B, out_.heads * T}, Type::f32, n.count);
    for (const Name name : {n.sinks_k, n.sinks_v}) need(name, {L, S, C}, kv);
    need(n.anchor_block, {A}, Type::i32);
    need(n.anchor_offsets, {A, K}, Type::i32);
    for (const Name name : {n.anchors_k, n.anchors_v}) need(name, {A, L, K, C}, kv);
    need(n.span, {T, 2}, Type::i32);
    need(n.attention, {T}, Type::f32);
    for (const Name name : {n.tombs_k, n.tombs_v}) need(name, {T, L, C}, Type::f32);
    need(n.cold, {0, payload_bytes(out_)}, Type::u8, n.archived);
    if (const auto& q = out_.qformer)
      need(n.index, {0, q->queries, q->width}, Type::f32, n.rows);
    else
      need(n.index, {0, Li, out_.key_heads, out_.channels}, Type::f32, n.rows);
    const uint64_t D = error_ ? 0 : graph_.declarations[n.topic_sum].elements();
    need(n.trim_scores, {B}, Type::f32);
    need(n.block_hidden, {B, D}, Type::f32);
    if (const auto& topics = out_.topics) {
      const uint64_t V = topics->most_virtual;
      need(n.center, {V, out_.node()}, Type::f32);
      need(n.center_count, {V}, Type::i32);
      need(n.center_spread, {V}, Type::f32);
      need(n.member, {0}, Type::i32, n.archived);
    }
    for (const Name name : {n.injected_blocks, n.pending_blocks}) need(name, {out_.most}, Type::i32);
    need(n.query, {Li, out_.key_heads, out_.channels}, Type::f32);
    need(n.topic_mean, graph_.declarations[n.topic_sum].shape, Type::f32);
    need(n.topic_spread, {2}, Type::f32);
    for (const Name name : {n.list_k, n.list_v, n.slots, n.asked, n.watched, n.first_tombstone}) {
      if (name != no_name && !graph_.declarations[name].derived)
        fail("needs \"", graph_.declarations[name].name, "\" to be derived.");
    }
    for (const Name name : {n.count, n.archived, n.slots, n.entries, n.tombs, n.rows, n.injected, n.pending,
                            n.topic_blocks, n.topic_seen, n.last_retrieval, n.version}) {
      if (name != no_name && !graph_.declarations[name].counter)
        fail("needs \"", graph_.declarations[name].name, "\" to be a counter.");
    }
    if (!error_ && graph_.declarations[n.slots].bound < out_.most_slots())
      fail("needs room for ", out_.most_slots(), " slots.");
  }

  const Value& root_;
  const Graph& graph_;
  ExternalMemory out_;
  std::optional<Error> error_;
};

}  // namespace

Result<ExternalMemory> read_external_memory(const Value& item, const Graph& graph) {
  return MemoryReader(item, graph).read();
}

size_t payload_bytes(const ExternalMemory& memory) {
  constexpr size_t header = 28, line = 64;
  const size_t exponents = memory.cold == Type::f8 ? memory.layers * 2 * memory.key_heads : 0;
  return (header + exponents + line - 1) / line * line +
         memory.layers * 2 * memory.block * memory.kv() * size_of(memory.cold);
}

}  // namespace continuo
