// Model: what is loaded, immutable, shared by every context and every thread.
#pragma once

#include <memory>
#include <vector>

#include "graph.h"
#include "kernels/cpu/kernels.h"
#include "threads.h"
#include "weights.h"

namespace continuo {

// One persistent variable as a slice of a context: `offset` and `elements` count floats; dense, in declaration order.
struct StateSlice {
  Name name;
  size_t offset;
  size_t elements;
};

class Model {
 public:
  // From a serialised graph and an image of a safetensors file; without `kernels` those that choose_kernels() gives.
  static Result<std::shared_ptr<const Model>> make(std::string_view graph_json, std::span<const std::byte> file, ThreadPool& pool,
                                                   const Kernels* kernels = nullptr);
  // As above, from a file on disk.
  static Result<std::shared_ptr<const Model>> load(std::string_view graph_json, const std::string& path, ThreadPool& pool);

  const Graph graph;
  const std::vector<Constant> constants;   // per declaration
  const std::vector<StateSlice> layout;
  const std::vector<size_t> state_offset;  // per declaration; meaningful for persistents
  const size_t state_elements;
  const Kernels& kernels;

 private:
  Model(Graph graph, std::vector<Constant> constants, std::vector<StateSlice> layout, const Kernels& kernels);
};

}  // namespace continuo
