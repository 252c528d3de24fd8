// Model: what is loaded, immutable, shared by every context and every thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/threads.h"
#include "compile/program.h"
#include "graph/graph.h"
#include "runtime/device.h"
#include "runtime/host_kernels.h"
#include "weights/weights.h"

namespace continuo {

// One persistent of a context. In memory each begins on a cache line; a table that grows has memory of its own, laid
// out [outer][positions it has room for][inner].
struct StateSlice {
  Name name;
  Type type;
  size_t offset = 0;       // bytes, of a slice that does not grow
  size_t elements = 0;     // of a slice that does not grow
  Name counter = no_name;  // what a slice that grows follows
  Name ring =
      no_name;  // what a slice with a ring follows; a table has one axis that follows a counter at most (reader.cc)
  size_t places = 0;            // of the ring
  size_t outer = 1, inner = 1;  // before and behind the axis that follows a counter
  // Of one that follows a counter: distance from the counter's value to the oldest position that a row may write.
  size_t write_reach = anywhere;
  static constexpr size_t anywhere = static_cast<size_t>(-1);
  bool grows() const { return counter != no_name; }
  Name follows() const { return grows() ? counter : ring; }
};

// What block "first" leaves in a context.
struct FirstState {
  DeviceMemory memory;
  std::vector<int64_t> counters;  // per slice
};

class Model {
 public:
  // From a serialised graph and an image of a safetensors file, onto the device. Throws DeviceError where the device
  // has no memory for it.
  static Result<std::shared_ptr<const Model>> make(std::string_view graph_json, std::span<const std::byte> file,
                                                   ThreadPool& pool, std::shared_ptr<Device> device,
                                                   const PackCache* cache = nullptr);
  // As above, from a file on disk.
  static Result<std::shared_ptr<const Model>> load(std::string_view graph_json, const std::string& path,
                                                   ThreadPool& pool, std::shared_ptr<Device> device,
                                                   const PackCache* cache = nullptr);

  // How many tokens a context takes before a counter that every token raises is at its bound; none where no counter has
  // one.
  std::optional<uint64_t> positions() const;

  const Graph graph;
  const ConstantIndex constant_index;
  std::vector<StateSlice> layout;        // in order of declaration
  const std::vector<uint32_t> slice_of;  // per declaration: into layout, or no_name
  const size_t state_bytes;              // of all slices that do not grow
  const std::shared_ptr<Device> device;
  const HostKernels& host() const { return device->host_kernels(); }
  std::vector<Constant> constants;  // per member of constant_index, in the device's memory
  std::vector<Program> programs;    // per block
  std::optional<FirstState> first;  // of every context, where the graph has a block "first"
  std::string note;                 // why packed weights on disk were not used

 private:
  Model(Graph graph, std::shared_ptr<Device> device);
  static Status run_first(const std::shared_ptr<Model>& model, ThreadPool& pool);
};

}  // namespace continuo
