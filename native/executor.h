// Runs a model's blocks over many rows at once.
//
// A step is a list of runs: consecutive tokens of one context. Rows of a run are contiguous. Every row-wise operation works on
// all rows together; the cache operations walk each run in token order, from the state the context holds. So it does not
// matter how tokens are spread over steps, nor which contexts share one.
#pragma once

#include <span>
#include <vector>

#include "context.h"
#include "model.h"
#include "plan.h"
#include "threads.h"

namespace continuo {

struct Run {
  Context* context;
  size_t row;   // first row
  size_t rows;
};

class Executor {
 public:
  Executor(std::shared_ptr<const Model> model, ThreadPool& pool, bool reuse_slots = true);

  // Rows a step may have, and rows `predict` takes at once.
  static constexpr size_t max_rows = 128;
  size_t predict_rows() const { return predict_rows_; }

  // Feeds tokens[row] for every row of the runs; contexts' persistent memory moves on. Clock and chain are the caller's.
  void step(std::span<const int32_t> tokens, std::span<const Run> runs);
  // After a step: [rows, width] last hidden vectors, and those of the token before each.
  const float* hidden() const { return value(step_, model_->graph.hidden); }
  const float* previous() const { return value(step_, model_->graph.previous); }
  size_t hidden_width() const { return model_->graph.width(model_->graph.hidden); }

  // Logits [rows, vocabulary] of `rows` hidden vectors, which the caller puts into predict_input() first.
  float* predict_input() { return value(predict_, model_->graph.predict.input); }
  const float* predict(size_t rows);

  const Model& model() const { return *model_; }

 private:
  struct Space {
    Plan plan;
    std::vector<size_t> offsets;  // per slot, in floats
    Memory memory;
  };
  static Space make_space(Plan plan, size_t rows);

  float* value(Space& space, Name name) { return space.memory.as<float>() + space.offsets[space.plan.slot_of[name]]; }
  const float* value(const Space& space, Name name) const { return space.memory.as<float>() + space.offsets[space.plan.slot_of[name]]; }

  void run(const Node& node, Space& space, size_t rows, std::span<const int32_t> tokens, std::span<const Run> runs);
  void elementwise(const Node& node, Space& space, size_t first, size_t rows);
  void matmul(const Node& node, Space& space, size_t rows);
  void shift(const Node& node, Space& space, std::span<const Run> runs);
  void wkv7(const Node& node, Space& space, std::span<const Run> runs);
  void embed(const Node& node, Space& space, size_t first, size_t rows, std::span<const int32_t> tokens);

  std::shared_ptr<const Model> model_;
  ThreadPool& pool_;
  size_t predict_rows_;
  Space step_;
  Space predict_;
  Memory scratch_;  // linear.h
};

}  // namespace continuo
