#include "runtime/model/model.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "runtime/model/block_list.h"
#include "runtime/model/geometry.h"
#include "weights/tensor_files.h"

namespace continuo {

namespace {

constexpr size_t line = 64;

// Fills in which counter an axis of the slice follows, and the elements before and behind that axis.
void find_axes(const Declaration& d, StateSlice& slice) {
  const auto axis = std::find_if(d.axes.begin(), d.axes.end(), [](const Axis& a) {
    return a.kind == Axis::Kind::grows || a.kind == Axis::Kind::ring;
  });
  if (axis == d.axes.end()) return;
  const bool ring = axis->kind == Axis::Kind::ring;
  (ring ? slice.ring : slice.counter) = axis->counter;
  if (ring) slice.places = static_cast<size_t>(axis->extent);
  for (auto other = d.axes.begin(); other != d.axes.end(); ++other) {
    if (other != axis) (other < axis ? slice.outer : slice.inner) *= static_cast<size_t>(other->extent);
  }
}

// Calls f(node) for every node, those of loops and branches too.
void each_node(std::span<const Node> nodes, const auto& f) {
  for (const auto& node : nodes) {
    f(node);
    each_node(node.body, f);
    each_node(node.otherwise, f);
  }
}

// Which tables [declarations] are rings that lie in blocks. A block of the arithmetic, positions 256 b … 256 b + 255,
// must be a block of the ring, whatever the lap, so the ring has a multiple of 256 places. And nothing may take the
// ring as one span: an op that picks no position of it does, and the copy of the first state.
std::vector<bool> rings_in_blocks(const Graph& graph) {
  std::vector<bool> out(graph.declarations.size());
  std::vector<size_t> axis_of(out.size());
  for (Name name = 0; name < out.size(); ++name) {
    const auto& axes = graph.declarations[name].axes;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].kind != Axis::Kind::ring || axes[i].extent % block_positions != 0) continue;
      out[name] = true;
      axis_of[name] = i;
    }
  }
  for (size_t i = 0; i < graph.blocks.size(); ++i) {
    each_node(graph.blocks[i].nodes, [&](const Node& node) {
      const bool finds = node.op == Op::attend || node.op == Op::attend_weights || node.op == Op::cache_attend ||
                         node.op == Op::cache_reset;
      const auto note = [&](const Operand& operand) {
        const bool whole = !finds && operand.at.size() <= axis_of[operand.name];
        if (whole || i == graph.first) out[operand.name] = false;
      };
      for (const auto& operand : node.in) note(operand);
      if (node.state) note(*node.state);
    });
  }
  // The rings of a node are read alike.
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& block : graph.blocks) {
      each_node(block.nodes, [&](const Node& node) {
        if (node.op != Op::attend && node.op != Op::cache_attend) return;
        const auto is_span = [&](const Operand& operand) {
          const auto& axes = graph.declarations[operand.name].axes;
          return !out[operand.name] &&
                 std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.kind == Axis::Kind::ring; });
        };
        if (std::none_of(node.in.begin(), node.in.end(), is_span)) return;
        for (const auto& operand : node.in) {
          changed = changed || out[operand.name];
          out[operand.name] = false;
        }
      });
    }
  }
  return out;
}

// write_reach of a cache.write to this place, where an axis of the table follows a counter.
size_t reach_along(const Declaration& d, const Place& place, size_t axis) {
  if (d.axes[axis].counter == no_name || axis >= place.picks.size()) return StateSlice::anywhere;
  const auto& pick = place.picks[axis];
  if (pick.kind != Term::Kind::counter || pick.id != d.axes[axis].counter) return StateSlice::anywhere;
  return static_cast<size_t>(std::max<int64_t>(0, -pick.offset));
}

size_t reach_of(const Declaration& d, const Place& place) {
  for (size_t axis = 0; axis < d.axes.size(); ++axis) {
    if (d.axes[axis].counter != no_name) return reach_along(d, place, axis);
  }
  return StateSlice::anywhere;
}

void note_writes(const Graph& graph, std::span<const Instruction> code, std::vector<StateSlice>& layout,
                 const std::vector<uint32_t>& slice_of) {
  for (const auto& instruction : code) {
    note_writes(graph, instruction.then, layout, slice_of);
    note_writes(graph, instruction.otherwise, layout, slice_of);
    const Op op = instruction.node->op;
    // Ops of these kinds write no new number into a table.
    const State state = traits_of(op).state;
    if (state == State::reads || state == State::resets || state == State::counts) continue;
    for (const auto& place : instruction.places) {
      const uint32_t i = slice_of[place.table];
      if (i == no_name) continue;
      size_t reach = StateSlice::anywhere;
      if (op == Op::cache_write) reach = reach_of(graph.declarations[place.table], place);
      // cache.attend writes the row's own key and value, at the newest position.
      if (op == Op::cache_attend) reach = 1;
      layout[i].write_reach = std::max(layout[i].write_reach, reach);
      const auto& d = graph.declarations[place.table];
      for (size_t axis = 0; axis < layout[i].reaches.size(); ++axis)
        layout[i].reaches[axis] = std::max(layout[i].reaches[axis],
                                           op == Op::cache_write ? reach_along(d, place, axis) : StateSlice::anywhere);
    }
  }
}

static_assert(Declaration::most_block == block_positions);

// Which tables [declarations] some op reads or writes.
std::vector<bool> touched_tables(const Graph& graph) {
  std::vector<bool> out(graph.declarations.size());
  for (const auto& block : graph.blocks) {
    each_node(block.nodes, [&](const Node& node) {
      for (const auto& operand : node.in) out[operand.name] = true;
      if (node.state) out[node.state->name] = true;
    });
  }
  return out;
}

std::vector<StateSlice> lay_out(const Graph& graph, const Device& device) {
  std::vector<StateSlice> layout;
  const auto in_blocks = rings_in_blocks(graph);
  const auto touched = touched_tables(graph);
  size_t offsets[] = {0, 0};  // on the device, on the host
  uint32_t several = 0;
  for (Name name = 0; name < graph.declarations.size(); ++name) {
    const auto& d = graph.declarations[name];
    if (d.kind != Kind::persistent || d.clock) continue;
    StateSlice slice{name, d.type};
    slice.derived = d.derived;
    if (graph.memory) {
      const auto& names = graph.memory->names;
      slice.may_sleep = name == names.cold;
      slice.copies =
          name == names.sinks_k || name == names.sinks_v || name == names.anchors_k || name == names.anchors_v;
    }
    if (d.growing() > 1) {
      slice.several = several++;
      slice.reaches.assign(d.axes.size(), 0);
      layout.push_back(slice);
      continue;
    }
    slice.on_host = (graph.memory || graph.perspective) && !device.in_host_memory() && !touched[name];
    find_axes(d, slice);
    slice.block = static_cast<size_t>(d.block);
    slice.ring_in_blocks = in_blocks[name];
    if (!slice.grows()) slice.elements = static_cast<size_t>(d.elements());
    if (!slice.in_blocks()) {
      size_t& offset = offsets[slice.on_host];
      slice.offset = offset;
      offset += (slice.elements * size_of(d.type) + line - 1) / line * line;
    }
    layout.push_back(slice);
  }
  return layout;
}

std::vector<uint32_t> numbered(const std::vector<StateSlice>& layout, size_t declarations) {
  std::vector<uint32_t> out(declarations, no_name);
  for (size_t i = 0; i < layout.size(); ++i) out[layout[i].name] = static_cast<uint32_t>(i);
  return out;
}

size_t fixed_bytes(const std::vector<StateSlice>& layout, bool on_host) {
  size_t bytes = 0;
  for (const auto& slice : layout) {
    if (!slice.in_blocks() && slice.several == no_name && slice.on_host == on_host)
      bytes = slice.offset + (slice.elements * size_of(slice.type) + line - 1) / line * line;
  }
  return bytes;
}

// Refuses an op that the device cannot run.
Status check_device(const Device& device, const Graph& graph, std::span<const Instruction> code) {
  for (const auto& instruction : code) {
    if (!device.runs(instruction.node->op)) {
      return invalid("graph: node ", instruction_text(graph, instruction), ": the device \"", device.name(),
                     "\" does not have this operation. Open the model on another device.");
    }
    if (auto good = check_device(device, graph, instruction.then); !good) return good;
    if (auto good = check_device(device, graph, instruction.otherwise); !good) return good;
  }
  return Done{};
}

ConstantSpec spec_of(const Graph& graph, const ConstantIndex::Member& member) {
  const auto& d = graph.declarations[member.declaration];
  const auto filled = [&](std::string name) {
    if (d.over == no_name) return name;
    const std::string hole = text("{", graph.indices[d.over].name, "}");
    const std::string number = std::to_string(graph.indices[d.over].number(member.member));
    for (size_t at = name.find(hole); at != std::string::npos; at = name.find(hole, at + number.size()))
      name.replace(at, hole.size(), number);
    return name;
  };
  if (d.volatile_table()) {
    ConstantSpec table;
    table.name = d.name;
    table.layout = Layout::vector;
    table.shape = {d.elements()};
    table.tensor = filled(d.tensor);
    table.extents = d.shape;
    return table;
  }
  if (d.layout == Layout::experts) {
    ConstantSpec none;
    none.name = d.name;
    none.layout = Layout::experts;
    none.shape = d.shape;
    return none;
  }
  // In a stack `each` leads from matrix to matrix.
  const bool stack = d.layout == Layout::stack;
  return {d.name,    d.layout,  d.shape,          filled(d.tensor), d.transposed,
          d.row,     d.storage, filled(d.scales), d.group,          stack ? d.view : d.view.of(member.member),
          d.columns, d.map};
}

}  // namespace

Model::Model(Graph g, std::shared_ptr<Device> on)
    : graph(std::move(g)),
      constant_index(graph),
      layout(lay_out(graph, *on)),
      slice_of(numbered(layout, graph.declarations.size())),
      state_bytes(fixed_bytes(layout, false)),
      host_bytes(fixed_bytes(layout, true)),
      device(std::move(on)),
      host_device(device->in_host_memory() ? device : device->host_device()) {}

Result<std::shared_ptr<const Model>> Model::make(std::string_view graph_json, const std::vector<Tensor>& tensors,
                                                 ThreadPool& pool, std::shared_ptr<Device> device,
                                                 const PackCache* cache, std::shared_ptr<BlockCache> sleepy_blocks,
                                                 std::shared_ptr<experts::ExpertCache> experts) {
  auto graph = parse_graph(graph_json);
  if (!graph) return graph.error();
  std::shared_ptr<Model> model(new Model(std::move(*graph), std::move(device)));
  for (const auto& block : model->graph.blocks) {
    auto program = Program::make(model->graph, block, model->constant_index);
    if (!program) return program.error();
    if (auto good = check_device(*model->device, model->graph, program->code); !good) return good.error();
    model->programs.push_back(std::move(*program));
  }
  for (uint32_t i = 0; i < model->layout.size(); ++i) {
    model->layout[i].write_reach = 0;
    if (model->layout[i].several != no_name) model->several.push_back(i);
  }
  for (const auto& program : model->programs) note_writes(model->graph, program.code, model->layout, model->slice_of);
  if (const auto& memory = model->graph.memory) {
    auto modules = MemoryModules::read(*memory, model->graph.width(memory->names.topic_sum), tensors);
    if (!modules) return modules.error();
    model->modules = std::move(*modules);
    model->sleepy_blocks = sleepy_blocks ? std::move(sleepy_blocks) : std::make_shared<BlockCache>();
  }
  model->experts = std::move(experts);
  if (const auto& form = model->graph.perspective; form && form->memory)
    model->hyper_space = std::make_unique<const HyperSpace>(
        *form->memory, model->graph.width(model->graph.language->hidden), model->graph.vocabulary());
  std::vector<ConstantSpec> specs;
  for (const auto& member : model->constant_index.members()) specs.push_back(spec_of(model->graph, member));
  auto packed = pack_weights(specs, tensors, pool, cache);
  if (!packed) return packed.error();
  model->constants = std::move(packed->constants);
  if (auto good = check_geometry(model->graph, model->constant_index, model->programs, model->constants); !good)
    return good.error();
  for (auto& constant : model->constants) {
    model->weight_bytes += constant.bytes.size();
    model->device->adopt(constant);
  }
  if (auto good = model->find_experts(); !good) return good.error();
  model->packed_file = std::move(packed->file);
  model->note = std::move(packed->note);
  if (auto good = run_first(model, pool); !good) return good.error();
  begin_adapters(model);
  return std::shared_ptr<const Model>(std::move(model));
}

// Binds constants of the layout experts to the layers of the store.
Status Model::find_experts() {
  for (size_t i = 0; i < constants.size(); ++i) {
    const auto& [declaration, member] = constant_index.members()[i];
    const auto& d = graph.declarations[declaration];
    if (d.layout != Layout::experts || d.kind != Kind::constant) continue;
    auto& constant = constants[i];
    constant.layout = Layout::experts;
    constant.layer = static_cast<uint32_t>(graph.indices[d.over].number(member));
    constant.members = static_cast<size_t>(d.shape[0]);
    const auto* index = experts ? experts->index(constant.layer) : nullptr;
    if (!index) return invalid("graph: constant \"", d.name, "\" needs layer ", constant.layer, " of an expert store.");
    const std::vector<uint64_t> found{index->records.size(), index->shape.inner, index->shape.channels};
    if (found != d.shape)
      return Error{Code::refused, text("Layer ", constant.layer, " of the expert store has experts ", shape_text(found),
                                       ", expected ", shape_text(d.shape),
                                       " (experts, inner channels, channels). Pack the experts again: continuo experts "
                                       "pack.")};
    // The digest is over bytes alone, and the same bytes may be cut into other groups.
    if (graph.perspective &&
        (index->shape.coding != experts::Coding::ternary3 || index->shape.group != graph.perspective->group))
      return Error{Code::refused, text("Layer ", constant.layer, " of the expert store has experts in ",
                                       experts::name_of(index->shape.coding), ", groups of ", index->shape.group,
                                       ", expected ternary3 in groups of ", graph.perspective->group,
                                       ". Pack the experts again: continuo experts pack.")};
  }
  return Done{};
}

std::optional<uint64_t> Model::positions() const {
  std::optional<uint64_t> most;
  if (!graph.language) return most;
  for (const auto& [counter, by] : programs[graph.language->step].growth) {
    const uint64_t bound = graph.declarations[counter].bound;
    if (bound < unbounded && !graph.declarations[counter].derived)
      most = std::min(most.value_or(bound), bound / static_cast<uint64_t>(by));
  }
  return most;
}

Result<std::shared_ptr<const Model>> Model::make(std::string_view graph_json, std::span<const std::byte> file,
                                                 ThreadPool& pool, std::shared_ptr<Device> device,
                                                 const PackCache* cache) {
  auto read = read_tensor_file(file, "model.safetensors");
  if (!read) return read.error();
  return make(graph_json, read->tensors, pool, std::move(device), cache);
}

Result<std::shared_ptr<const Model>> Model::load(std::string_view graph_json, std::span<const std::string> paths,
                                                 ThreadPool& pool, std::shared_ptr<Device> device,
                                                 const PackCache* cache, std::shared_ptr<BlockCache> sleepy_blocks,
                                                 std::shared_ptr<experts::ExpertCache> experts) {
  auto files = TensorFiles::open(paths);
  if (!files) return files.error();
  return make(graph_json, files->tensors(), pool, std::move(device), cache, std::move(sleepy_blocks),
              std::move(experts));
}

}  // namespace continuo
