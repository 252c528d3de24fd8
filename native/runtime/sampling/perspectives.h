// Decoding from several perspectives (docs/perspective.md): where a token is drawn and the model is unsure, its last
// layers run again from other beginnings or along other routes, and what they agree on, or what the hyperdimensional
// memory recalls, is drawn from. Nothing here writes state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/executor/executor.h"
#include "runtime/model/hyper_memory.h"

namespace continuo {

// What a draw found; what was not computed is not there.
struct DrawNote {
  bool fired = false;
  float entropy = 0;  // nats
  std::optional<float> jsd;
  std::optional<bool> agreed;
  std::optional<HyperSpace::Recalled> recalled;
  std::optional<float> weight;  // of the recalled token
};

struct Drawn {
  DrawNote note;
  std::vector<float> logits;  // [vocabulary] to draw from; empty: the row's own
};

// Of each row: its context, pinned, whose last token the row's logits came from; and the seed of its request.
struct DrawnRow {
  Context* context;
  uint64_t seed;
};

// `logits` [rows, vocabulary]. The values of block "predict" are others afterwards.
std::vector<Drawn> draw_perspectives(Executor& executor, std::span<const DrawnRow> rows, const float* logits);

}  // namespace continuo
