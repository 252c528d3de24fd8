// Makes safetensors files and a small random model in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "runtime/executor/executor.h"
#include "test/check.h"

namespace continuo::test {

struct Weight {
  std::string name;
  std::vector<size_t> shape;
  std::vector<float> values;
  Dtype dtype = Dtype::f32;
};

inline std::vector<std::byte> image_of(const std::string& header, size_t data_bytes = 0) {
  std::vector<std::byte> out(8 + header.size() + data_bytes);
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<std::byte>(header.size() >> (8 * i) & 255);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

// bf16 by truncation; f16 only for values that f16 represents well enough for a test of loading.
inline void put(std::byte* to, Dtype dtype, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == Dtype::f32) return void(std::memcpy(to, &bits, 4));
  uint16_t half = static_cast<uint16_t>(bits >> 16);
  if (dtype == Dtype::f16) {
    const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
    half = static_cast<uint16_t>(bits >> 16 & 0x8000);
    if (exponent > 0) half = static_cast<uint16_t>(half | exponent << 10 | (bits >> 13 & 0x3FF));
  }
  std::memcpy(to, &half, 2);
}

inline std::vector<std::byte> image_of(const std::vector<Weight>& weights) {
  std::string header = "{";
  size_t offset = 0;
  for (const auto& w : weights) {
    if (offset > 0 || header.size() > 1) header += ",";
    header += "\"" + w.name + "\":{\"dtype\":\"" + name_of(w.dtype) + "\",\"shape\":[";
    for (size_t i = 0; i < w.shape.size(); ++i) header += (i ? "," : "") + std::to_string(w.shape[i]);
    const size_t bytes = w.values.size() * size_of(w.dtype);
    header += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  auto out = image_of(header + "}", offset);
  size_t at = out.size() - offset;
  for (const auto& w : weights) {
    for (const float value : w.values) {
      put(out.data() + at, w.dtype, value);
      at += size_of(w.dtype);
    }
  }
  return out;
}

// One layer that uses every operation: V tokens, C channels, H heads; its weights random.
struct SmallModel {
  std::string graph;
  std::vector<std::byte> image;
};

inline SmallModel small_model(uint64_t seed, size_t V, size_t C, size_t H, Dtype dtype) {
  Random random(seed);
  std::vector<Weight> weights;
  std::string declarations, nodes;
  const auto shape = [](std::vector<size_t> extents) {
    std::string out = "[";
    for (size_t i = 0; i < extents.size(); ++i) out += (i ? "," : "") + std::to_string(extents[i]);
    return out + "]";
  };
  const auto declare = [&](const std::string& body) {
    declarations += (declarations.empty() ? "" : ",") + ("{" + body + "}");
  };
  const auto constant = [&](const std::string& name, const std::string& layout, std::vector<size_t> extents,
                            bool transposed = false) {
    size_t n = 1;
    for (const size_t e : extents) n *= e;
    auto stored = extents;
    if (transposed) std::swap(stored[0], stored[1]);
    weights.push_back({name, stored, random.floats(n, -0.5f, 0.5f), dtype});
    declare("\"kind\":\"constant\",\"name\":\"" + name + "\",\"shape\":" + shape(extents) + ",\"layout\":\"" + layout +
            "\",\"ref\":\"" + name + "\",\"transposed\":" + (transposed ? "true" : "false"));
  };
  const auto node = [&](const std::string& op, const std::string& out, std::vector<std::string> in,
                        std::vector<size_t> extents, const std::string& extra = "") {
    declare("\"kind\":\"volatile\",\"name\":\"" + out + "\",\"dtype\":\"f32\",\"shape\":" + shape(extents));
    nodes += (nodes.empty() ? "" : ",") + ("{\"op\":\"" + op + "\",\"out\":\"" + out + "\",\"in\":[");
    for (size_t i = 0; i < in.size(); ++i) nodes += (i ? ",\"" : "\"") + in[i] + "\"";
    nodes += "]" + extra + "}";
  };
  const auto persistent = [&](const std::string& name, std::vector<size_t> extents) {
    declare("\"kind\":\"persistent\",\"name\":\"" + name + "\",\"dtype\":\"f32\",\"axes\":" + shape(extents) +
            ",\"init\":0");
  };
  const std::string heads = ",\"groups\":" + std::to_string(H);
  declare("\"kind\":\"dynamic\",\"name\":\"token\",\"shape\":[],\"dtype\":\"i32\"");
  declare("\"kind\":\"dynamic\",\"name\":\"h.in\",\"shape\":" + shape({C}) + ",\"dtype\":\"f32\"");
  constant("emb", "rows", {V, C});
  for (const char* name : {"one", "nw", "nb", "mix", "u", "gw", "gb"}) constant(name, "vector", {C});
  for (const char* name : {"wr", "ww", "wk", "wv", "wa"}) constant(name, "packed", {C, C});
  constant("wide", "packed", {3 * C, C}, true);
  constant("narrow", "packed", {C, 3 * C});
  constant("head", "packed", {V, C});
  persistent("p", {C});
  persistent("S", {H, C / H, C / H});
  persistent("last", {C});
  const std::vector<size_t> c{C};
  node("embed", "x", {"token", "emb"}, c);
  node("norm", "n", {"x", "nw", "nb"}, c, ",\"groups\":1,\"eps\":1e-5");
  node("cache.shift", "before", {"n"}, c, ",\"state\":\"p\"");
  node("lerp", "m", {"n", "before", "mix"}, c);
  node("matmul", "r", {"m", "wr"}, c);
  node("matmul", "w.z", {"m", "ww"}, c);
  node("add", "w.b", {"w.z", "one"}, c);
  node("decay", "w", {"w.b"}, c);
  node("matmul", "k", {"m", "wk"}, c);
  node("matmul", "v", {"m", "wv"}, c);
  node("matmul", "a.z", {"m", "wa"}, c);
  node("sigmoid", "a", {"a.z"}, c);
  node("l2norm", "kk", {"k"}, c, heads + ",\"eps\":1e-12");
  node("cache.wkv7", "y", {"r", "w", "k", "v", "kk", "a"}, c, heads + ",\"state\":\"S\"");
  node("norm", "y.n", {"y", "gw", "gb"}, c, heads + ",\"eps\":64e-5");
  node("bonus", "y.b", {"y.n", "r", "k", "u", "v"}, c, heads);
  node("mul", "y.g", {"y.b", "a"}, c);
  node("matmul", "f", {"y.g", "wide"}, {3 * C});
  node("relu2", "f.e", {"f"}, {3 * C});
  node("matmul", "f.o", {"f.e", "narrow"}, c);
  node("tanh", "f.t", {"f.o"}, c);
  node("add", "h", {"x", "f.t"}, c);
  node("cache.shift", "h.before", {"h"}, c, ",\"state\":\"last\"");
  const std::string step = nodes;
  nodes.clear();
  node("matmul", "logits", {"h.in", "head"}, {V});
  return {"{\"format\":\"continuo-graph/2\",\"declarations\":[" + declarations +
              "],\"blocks\":[{\"name\":\"step\",\"inputs\":[\"token\"],\"nodes\":[" + step +
              ",{\"return\":{\"hidden\":\"h\",\"previous\":\"h.before\"}}]},{\"name\":\"predict\",\"inputs\":[\"h.in\"]"
              ",\"nodes\":[" +
              nodes + ",{\"return\":{\"logits\":\"logits\"}}]}]}",
          image_of(weights)};
}

// One step of a language model over one run: the last hidden vectors.
inline std::vector<float> hidden_vectors(Executor& executor, Context& context, const std::vector<int32_t>& tokens) {
  const auto& model = executor.model();
  const auto& language = *model.graph.language;
  const Run run{&context, 0, tokens.size()};
  executor.insert(language.step, 0, std::as_bytes(std::span(tokens)));
  executor.step(language.step, tokens.size(), {&run, 1});
  const auto* hidden = reinterpret_cast<const float*>(
      executor.fetch(language.step, model.programs[language.step].result("hidden"), tokens.size()));
  return {hidden, hidden + tokens.size() * model.graph.width(language.hidden)};
}

}  // namespace continuo::test
