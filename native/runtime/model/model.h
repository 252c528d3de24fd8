// Model: a graph with its programs and weights. Immutable; shared by every context and every thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/threads.h"
#include "compile/program.h"
#include "experts/cache.h"
#include "graph/graph.h"
#include "runtime/model/block_cache.h"
#include "runtime/model/device.h"
#include "runtime/model/host_kernels.h"
#include "runtime/model/hyper_memory.h"
#include "runtime/model/memory_modules.h"
#include "weights/weights.h"

namespace continuo {

// One persistent of a context. It lies at `offset` in the context's memory, on a cache line, or has memory of its own:
// blocks (blocks.h) where it grows along one counter, and where it is a ring that can be read in blocks; a GrownTable
// (grown_table.h) where it grows along several counters. Where one axis of a table follows a counter, the elements
// around it are
//   a ring          [outer, places, inner]
//   a growing table [outer, positions it has room for, inner]
struct StateSlice {
  Name name;
  Type type;
  size_t offset = 0;       // bytes in the span of its device; 0 where it has memory of its own
  size_t elements = 0;     // 0 where it grows
  Name counter = no_name;  // the counter that a growing axis follows
  Name ring = no_name;     // the counter that a ring follows
  size_t places = 0;       // of the ring
  // Positions of a block, where it lies in blocks: a power of two.
  size_t block = Declaration::most_block;
  bool ring_in_blocks = false;  // the ring's places lie in places / 256 blocks
  size_t outer = 1, inner = 1;  // elements before and behind the axis that follows a counter
  // Where an axis follows a counter: from the counter's value back to the oldest position that a row may write.
  size_t write_reach = anywhere;
  static constexpr size_t anywhere = static_cast<size_t>(-1);
  // Where the table grows along several counters: its index among such tables, and [axes] write_reach along each axis.
  uint32_t several = no_name;
  std::vector<size_t> reaches = {};
  bool derived = false;  // not in a snapshot
  // Every number in it was copied from another table, which is checked: see Context::finite.
  bool copies = false;
  // Only the host reads the table, which grows along one counter: its blocks lie in the host's memory, and full ones
  // may sleep (block_cache.h).
  bool may_sleep = false;
  // No op reads or writes the table, only the controller of the external memory does: it lies in the host's memory
  // where the device has another one.
  bool on_host = false;
  bool grows() const { return counter != no_name; }
  bool in_blocks() const { return grows() || ring_in_blocks; }
  Name follows() const { return grows() ? counter : ring; }
};

// The first state of every context, as block "first" computes it.
struct FirstState {
  DeviceMemory memory, on_host;   // [state_bytes], [host_bytes]
  std::vector<int64_t> counters;  // [slices]
};

class Model {
 public:
  // Reads a graph (JSON), and moves the weights that it names onto the device. Throws DeviceError where the device has
  // no memory for them. `cache`: a file of packed weights to map (weights.h). `sleepy_blocks`: of the same model that
  // was loaded before; none: a new one, where the graph needs it.
  static Result<std::shared_ptr<const Model>> make(std::string_view graph_json, const std::vector<Tensor>& tensors,
                                                   ThreadPool& pool, std::shared_ptr<Device> device,
                                                   const PackCache* cache = nullptr,
                                                   std::shared_ptr<BlockCache> sleepy_blocks = nullptr,
                                                   std::shared_ptr<experts::ExpertCache> experts = nullptr);
  // The same, with the bytes of one file (tensor_files.h).
  static Result<std::shared_ptr<const Model>> make(std::string_view graph_json, std::span<const std::byte> file,
                                                   ThreadPool& pool, std::shared_ptr<Device> device,
                                                   const PackCache* cache = nullptr);
  // The same, with files on disk.
  static Result<std::shared_ptr<const Model>> load(std::string_view graph_json, std::span<const std::string> paths,
                                                   ThreadPool& pool, std::shared_ptr<Device> device,
                                                   const PackCache* cache = nullptr,
                                                   std::shared_ptr<BlockCache> sleepy_blocks = nullptr,
                                                   std::shared_ptr<experts::ExpertCache> experts = nullptr);

  // How many tokens a context can take until a counter that every token raises reaches its bound. None where no such
  // counter has a bound.
  std::optional<uint64_t> positions() const;

  // Where the table's bytes lie.
  Device& device_of(const StateSlice& slice) const { return slice.on_host ? *host_device : *device; }

  const Graph graph;
  const ConstantIndex constant_index;
  std::vector<StateSlice> layout;        // [slices], in order of declaration; the clock has no slice
  std::vector<uint32_t> several;         // the slices of tables that grow along several counters
  const std::vector<uint32_t> slice_of;  // [declarations]: index into layout, or no_name
  // Of all slices that have no memory of their own: on the device, and on the host.
  const size_t state_bytes, host_bytes;
  const std::shared_ptr<Device> device;
  const std::shared_ptr<Device> host_device;  // `device` itself where its memory is the host's
  const HostKernels& host() const { return device->host_kernels(); }
  std::vector<Constant> constants;  // [members of constant_index], in the device's memory; of a volatile table f32
  size_t weight_bytes = 0;          // of all constants
  std::vector<Program> programs;    // [blocks]
  std::optional<FirstState> first;  // where the graph has a block "first"
  std::unique_ptr<const MemoryModules> modules;  // of the external memory; null where it has none
  // The experts that the constants of the layout experts are layers of; null where there are none.
  std::shared_ptr<experts::ExpertCache> experts;
  // Of a perspective model with a hyperdimensional memory; else null.
  std::unique_ptr<const HyperSpace> hyper_space;
  // Of the tables that may sleep; null where there are none.
  std::shared_ptr<BlockCache> sleepy_blocks;
  std::shared_ptr<const PackedFile> packed_file;  // that the constants are mapped from; null: they were packed
  std::string note;  // why the file of packed weights that was named is not used; else empty

 private:
  Model(Graph graph, std::shared_ptr<Device> device);
  Status find_experts();
  static void begin_adapters(const std::shared_ptr<Model>& model);
  static Status run_first(const std::shared_ptr<Model>& model, ThreadPool& pool);
};

}  // namespace continuo
