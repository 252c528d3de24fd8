// Perspective: how a model of the perspective family draws its tokens and adapts its sessions (docs/perspective.md). A
// graph has it as its member "perspective": members of config.json. The state that it works on lies in persistents of
// fixed names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "graph/names.h"

namespace continuo {

struct Graph;

// Decoding from several perspectives: the last layers run again for each of them.
struct Perspectives {
  enum class Kind : uint8_t { base, jitter, temperature, dropout, second, antipode, random };
  size_t layers = 0;
  std::vector<Kind> kinds;  // the first is base
  float max_p = 0, entropy = 0, jsd = 0, jitter_std = 0, temperature = 1;
  double dropout = 0;
  // Those that run layers.
  static bool runs(Kind kind) { return kind != Kind::base && kind != Kind::temperature; }
};

// The hyperdimensional memory: banks of counters, addressed by a key of bits.
struct HyperMemory {
  size_t bits = 0, banks = 0;
  uint64_t seed = 0;
  uint32_t hit_max = 0;
  float blend = 0;
  double write_nats = 0;
};

// Adaptation between messages: low-rank adapters of linear maps, and offsets of the experts on the torus.
struct Adaptation {
  struct Target {
    std::string name;  // "pdr.p_proj"
    bool recurrent;    // of the recurrent layers; else of those with attention
    Name A = no_name, B = no_name;
  };
  std::vector<Target> targets;
  size_t rank = 0, directions = 0, population = 0;
  uint64_t seed = 0;
  double learning_rate = 0, anchor = 0, sigma = 0, router_rate = 0, router_anchor = 0;
  Name offset = no_name;
};

struct Perspective {
  struct Layer {
    bool recurrent, experts;
  };
  std::vector<Layer> layers;
  size_t recent = 0;  // tokens that an adaptation looks back on
  float gamma_min = 0, gamma_max = 1, eps = 0;
  bool convex = true;
  size_t top_k = 1, experts = 0;
  uint32_t group = 0;     // inputs of an expert that share a scale
  float temperature = 0;  // of the weights of chosen experts
  std::optional<Perspectives> perspectives;
  std::optional<HyperMemory> memory;
  std::optional<Adaptation> adaptation;
  Name ids = no_name, hiddens = no_name, start = no_name, banks = no_name, through = no_name;
};

Result<Perspective> read_perspective(const json::Value& item, const Graph& graph);

}  // namespace continuo
