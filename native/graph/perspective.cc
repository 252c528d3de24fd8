#include "graph/perspective.h"

#include <algorithm>
#include <cmath>

#include "graph/graph.h"
#include "graph/node_attributes.h"

namespace continuo {

namespace {

using json::Value;

class PerspectiveReader {
 public:
  PerspectiveReader(const Value& root, const Graph& graph) : root_(root), graph_(graph) {}

  Result<Perspective> read() {
    layers();
    out_.recent = static_cast<size_t>(number(root_, "recent"));
    if (const auto* pdr = part("pdr")) {
      out_.gamma_min = static_cast<float>(number(*pdr, "gamma_min"));
      out_.gamma_max = static_cast<float>(number(*pdr, "gamma_max"));
      out_.convex = word(*pdr, "write") == "convex";
    }
    out_.eps = static_cast<float>(number(root_, "eps"));
    if (const auto* experts = part("experts")) {
      out_.top_k = static_cast<size_t>(number(*experts, "top_k"));
      out_.experts = static_cast<size_t>(number(*experts, "count"));
      out_.group = static_cast<uint32_t>(whole(*experts, "group_size"));
      out_.temperature = static_cast<float>(number(*experts, "temperature"));
    }
    if (const auto* mpd = part("mpd")) perspectives(*mpd);
    if (const auto* hdm = part("hdm")) memory(*hdm);
    if (const auto* fmea = part("fmea")) adaptation(*fmea);
    if (out_.recent > 0) {
      out_.ids = table("recent.ids");
      out_.hiddens = table("recent.hidden");
    }
    if (error_) return *error_;
    return std::move(out_);
  }

 private:
  void fail(const std::string& what) {
    if (!error_) error_ = invalid("graph: member \"perspective\": ", what, ".");
  }
  // An object, or null where the member is null or missing.
  const Value* part(const char* name) {
    const auto* found = root_.find(name);
    return found && found->is_object() ? found : nullptr;
  }
  double number(const Value& from, const char* name) {
    const auto* found = from.find(name);
    const auto value = found ? found->as_double() : std::nullopt;
    if (!value || !std::isfinite(*value)) fail(text("\"", name, "\" is no number"));
    return value.value_or(0);
  }
  uint64_t whole(const Value& from, const char* name) {
    const auto* found = from.find(name);
    const auto value = found ? found->as_u64() : std::nullopt;
    if (!value) fail(text("\"", name, "\" is no whole number"));
    return value.value_or(0);
  }
  std::string word(const Value& from, const char* name) {
    const auto* found = from.text_of(name);
    if (!found) fail(text("\"", name, "\" is no text"));
    return found ? *found : "";
  }
  Name table(const std::string& name) {
    for (Name at = 0; at < graph_.declarations.size(); ++at) {
      const auto& d = graph_.declarations[at];
      if (d.name == name && d.kind == Kind::persistent) return at;
    }
    fail(text("there is no persistent \"", name, "\""));
    return no_name;
  }

  void layers() {
    const auto* types = root_.list_of("layer_types");
    const auto* ffns = root_.list_of("ffn_types");
    if (!types || !ffns || types->size() != ffns->size()) return fail("layer_types and ffn_types are not alike");
    for (size_t i = 0; i < types->size(); ++i)
      out_.layers.push_back({(*types)[i].text == "pdr", (*ffns)[i].text == "experts"});
  }

  void perspectives(const Value& from) {
    auto& out = out_.perspectives.emplace();
    out.layers = static_cast<size_t>(whole(from, "layers"));
    if (out.layers == 0 || out.layers > out_.layers.size()) fail("mpd.layers is no number of layers");
    out.max_p = static_cast<float>(number(from, "max_p"));
    out.entropy = static_cast<float>(number(from, "entropy"));
    out.jsd = static_cast<float>(number(from, "jsd"));
    out.jitter_std = static_cast<float>(number(from, "jitter_std"));
    out.temperature = static_cast<float>(number(from, "temperature"));
    out.dropout = number(from, "dropout");
    out_.start = table("mpd.x");
    const auto* kinds = from.list_of("perspectives");
    if (!kinds || kinds->size() < 2 || kinds->size() > 8) return fail("mpd.perspectives has not 2 to 8 entries");
    using enum Perspectives::Kind;
    for (const auto& kind : *kinds) {
      if (!read_word(kind.text,
                     {{"base", base},
                      {"jitter", jitter},
                      {"temperature", temperature},
                      {"dropout", dropout},
                      {"second", second},
                      {"antipode", antipode},
                      {"random", random}},
                     out.kinds.emplace_back()))
        fail(text("mpd.perspectives has the unknown entry \"", kind.text, "\""));
    }
    if (out.kinds[0] != base) fail("mpd.perspectives does not begin with base");
  }

  void memory(const Value& from) {
    auto& out = out_.memory.emplace();
    out.bits = static_cast<size_t>(whole(from, "bits"));
    out.banks = static_cast<size_t>(whole(from, "banks"));
    out.seed = whole(from, "seed");
    out.hit_max = static_cast<uint32_t>(whole(from, "hit_max"));
    out.blend = static_cast<float>(number(from, "blend"));
    out.write_nats = number(from, "write_nats");
    out_.banks = table("hdm.banks");
    out_.through = table("hdm.through");
  }

  void adaptation(const Value& from) {
    auto& out = out_.adaptation.emplace();
    out.rank = static_cast<size_t>(whole(from, "rank"));
    out.directions = static_cast<size_t>(whole(from, "directions"));
    out.population = static_cast<size_t>(whole(from, "population"));
    out.seed = whole(from, "seed");
    out.learning_rate = number(from, "learning_rate");
    out.anchor = number(from, "anchor");
    out.sigma = number(from, "sigma");
    out.router_rate = number(from, "router_rate");
    out.router_anchor = number(from, "router_anchor");
    out.offset = table("router.offset");
    const auto* targets = from.list_of("targets");
    if (!targets) return fail("fmea.targets is no list");
    for (const auto& target : *targets) {
      out.targets.push_back({target.text, target.text.starts_with("pdr."), table(text("fmea.", target.text, ".A")),
                             table(text("fmea.", target.text, ".B"))});
    }
  }

  const Value& root_;
  const Graph& graph_;
  Perspective out_;
  std::optional<Error> error_;
};

}  // namespace

Result<Perspective> read_perspective(const Value& item, const Graph& graph) {
  return PerspectiveReader(item, graph).read();
}

}  // namespace continuo
