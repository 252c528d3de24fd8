// Derivatives of an evaluation's loss along directions of the adapters, carried forward beside the values (forward-mode
// differentiation; docs/perspective.md has the tangent of each part). The values are the engine's; the tangents are
// computed on the host, with every device in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor/executor.h"
#include "runtime/state/adapters.h"

namespace continuo {

class Tangents {
 public:
  explicit Tangents(std::shared_ptr<const Model> model);

  // The values of a pass over tokens: of every name of block "step", and the logits behind each token.
  struct Values {
    std::map<std::string, std::vector<float>> rows;   // [tokens, elements]
    std::map<std::string, std::vector<int32_t>> ids;  // the same, of whole numbers
    std::vector<float> logits;                        // [tokens, vocabulary]
  };
  // Adds the rows of the step that the executor, whose values do not share memory, has just run.
  void collect(Executor& executor, size_t rows, Values& to) const;

  // The derivative of the mean surprisal of tokens 1 … n along each direction [directions][parameters]. `ids`
  // [n]: the tokens that the logits of the n rows predict.
  Result<std::vector<float>> slopes(const Values& values, std::span<const int32_t> ids, const std::vector<float>& theta,
                                    const std::vector<std::vector<float>>& directions);

 private:
  class Pass;
  struct Matrix {
    size_t outputs, inputs;
    std::vector<float> numbers;  // row-major
  };
  // A constant's numbers, kept.
  const Matrix& constant(const std::string& name, size_t member);

  std::shared_ptr<const Model> model_;
  std::map<std::string, Name> names_;
  std::map<std::pair<Name, size_t>, Matrix> constants_;
};

}  // namespace continuo
