#include "model.h"

namespace continuo {

namespace {

std::vector<StateSlice> lay_out(const Graph& graph) {
  std::vector<StateSlice> layout;
  size_t offset = 0;
  for (size_t i = 0; i < graph.declarations.size(); ++i) {
    if (graph.declarations[i].kind != Kind::persistent) continue;
    const size_t elements = graph.declarations[i].elements();
    layout.push_back({static_cast<Name>(i), offset, elements});
    offset += elements;
  }
  return layout;
}

std::vector<ConstantSpec> constants_of(const Graph& graph) {
  std::vector<ConstantSpec> specs(graph.declarations.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& d = graph.declarations[i];
    if (d.kind != Kind::constant) continue;
    specs[i].name = d.name;
    specs[i].layout = d.layout;
    specs[i].shape = d.shape;
    specs[i].tensor = d.tensor;
    specs[i].transposed = d.transposed;
    specs[i].row = d.row;
  }
  return specs;
}

std::vector<size_t> offsets(const std::vector<StateSlice>& layout, size_t declarations) {
  std::vector<size_t> out(declarations, 0);
  for (const auto& slice : layout) out[slice.name] = slice.offset;
  return out;
}

}  // namespace

Model::Model(Graph g, std::vector<Constant> c, std::vector<StateSlice> l, const Kernels& k)
    : graph(std::move(g)),
      constants(std::move(c)),
      layout(std::move(l)),
      state_offset(offsets(layout, graph.declarations.size())),
      state_elements(layout.empty() ? 0 : layout.back().offset + layout.back().elements),
      kernels(k) {}

Result<std::shared_ptr<const Model>> Model::make(std::string_view graph_json, std::span<const std::byte> file, ThreadPool& pool,
                                                 const Kernels* kernels) {
  if (kernels == nullptr) {
    auto chosen = choose_kernels();
    if (!chosen) return chosen.error();
    kernels = *chosen;
  }
  auto graph = parse_graph(graph_json);
  if (!graph) return graph.error();
  auto tensors = read_safetensors(file);
  if (!tensors) return tensors.error();
  auto constants = pack_weights(constants_of(*graph), *tensors, pool);
  if (!constants) return constants.error();
  auto layout = lay_out(*graph);
  return std::shared_ptr<const Model>(new Model(std::move(*graph), std::move(*constants), std::move(layout), *kernels));
}

Result<std::shared_ptr<const Model>> Model::load(std::string_view graph_json, const std::string& path, ThreadPool& pool) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  return make(graph_json, file->bytes(), pool);
}

}  // namespace continuo
