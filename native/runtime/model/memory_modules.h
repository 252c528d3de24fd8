// The learned modules of an external memory (memory.safetensors): a trimmer scores tokens, a Q-Former sums a block up
// in a few vectors, heads make tombstones of those, a projector asks for them, a walker goes through the graph of
// topics. Matrices are [outputs, inputs]; every product is a row sum. They run on the host, between two tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "graph/external_memory.h"
#include "runtime/model/host_kernels.h"
#include "weights/tensor.h"

namespace continuo {

// What modules compute with. No bit depends on the number of threads: each sum is one task.
struct HostWork {
  const HostKernels& kernels;
  ThreadPool& pool;
};

class MemoryModules {
 public:
  // Reads the tensors that the memory's settings ask for; `channels`: D of the model. INVALID names one that is missing
  // or has another shape. Null where the settings ask for none.
  static Result<std::unique_ptr<const MemoryModules>> read(const ExternalMemory& memory, size_t channels,
                                                           std::span<const Tensor> tensors);

  float trim_score(const HostWork& work, const float* hidden) const;
  // hidden [B, D] → row [N, F], each of its N vectors of length 1.
  void sum_up(const HostWork& work, const float* hidden, float* row) const;
  bool has_tombstone_heads() const { return !tombstone_k_.empty(); }
  // Adds what a row [N, F] says to a tombstone's key and value, [L, C] each.
  void add_to_tombstone(const HostWork& work, const float* row, float* key, float* value) const;
  // The question that a hidden vector asks, [F], of length 1.
  std::vector<float> question(const HostWork& work, const float* hidden) const;
  static constexpr size_t walker_inputs = 9;
  float walk_score(const HostWork& work, const float* features) const;

 private:
  using Numbers = std::vector<float>;
  struct Linear {
    Numbers weight, bias;  // bias may be empty
    size_t outputs = 0;
  };
  struct LayerNorm {
    Numbers weight, bias;
  };
  struct Attention {
    Linear q, k, v, o;
  };
  struct Layer {
    LayerNorm self_norm, cross_norm, mlp_norm;
    Attention self, cross;
    Linear up, down;
  };

  MemoryModules(const ExternalMemory& memory, size_t channels) : memory_(memory), channels_(channels) {}
  static void apply(const HostWork& work, const Linear& linear, const float* x, size_t rows, float* y);
  static void normalise(const HostWork& work, const LayerNorm& norm, const float* x, size_t rows, float* y);
  void attend(const HostWork& work, const Attention& of, const Numbers& asking, const Numbers& asked, Numbers& x) const;

  const ExternalMemory& memory_;
  const size_t channels_;
  LayerNorm trim_norm_, in_norm_, out_norm_;
  Linear trim_in_, trim_out_, in_proj_, gate_, up_, down_, walk_in_, walk_out_;
  Numbers positions_, queries_, tombstone_k_, tombstone_v_;
  std::vector<Layer> layers_;

  friend class ModuleReader;
};

}  // namespace continuo
