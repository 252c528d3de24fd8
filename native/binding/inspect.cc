#include "binding/inspect.h"

#include <sstream>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cuda/cuda.h"
#include "binding/handles.h"
#include "compile/program.h"
#include "graph/ops.h"
#include "runtime/executor.h"
#include "weights/safetensors.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

// inspect(path): the tensors that the header of a safetensors file lists.
Value inspect(const CallbackInfo& info) {
  const auto env = info.Env();
  auto file = MappedFile::open(info[0].As<Napi::String>());
  if (!file) throw error_value(env, file.error());
  auto tensors = read_safetensors(file->bytes());
  if (!tensors) throw error_value(env, tensors.error());
  auto out = Napi::Array::New(env, tensors->size());
  for (size_t i = 0; i < tensors->size(); ++i) {
    const auto& tensor = (*tensors)[i];
    auto shape = Napi::Array::New(env, tensor.shape.size());
    for (size_t d = 0; d < tensor.shape.size(); ++d)
      shape.Set(static_cast<uint32_t>(d), static_cast<double>(tensor.shape[d]));
    auto entry = Napi::Object::New(env);
    entry.Set("name", tensor.name);
    entry.Set("dtype", tensor.dtype);
    entry.Set("shape", shape);
    entry.Set("offset", static_cast<double>(tensor.offset));
    entry.Set("bytes", static_cast<double>(tensor.data.size()));
    out.Set(static_cast<uint32_t>(i), entry);
  }
  return out;
}

// plan(graphJson): how the engine would run a graph; throws where the graph is invalid.
Value plan(const CallbackInfo& info) {
  const auto env = info.Env();
  auto graph = parse_graph(info[0].As<Napi::String>().Utf8Value());
  if (!graph) throw error_value(env, graph.error());
  const ConstantIndex constants(*graph);
  auto blocks = Napi::Array::New(env);
  for (const auto& block : graph->blocks) {
    auto program = Program::make(*graph, block, constants);
    if (!program) throw error_value(env, program.error());
    const Plan planned = Plan::make(program->lifetimes);
    auto values = Napi::Array::New(env, program->values.size());
    for (size_t i = 0; i < program->values.size(); ++i) {
      auto value = Napi::Object::New(env);
      value.Set("name", graph->declarations[program->values[i].name].name);
      value.Set("bytes", static_cast<double>(program->lifetimes[i].bytes));
      value.Set("offset", static_cast<double>(planned.offsets[i]));
      value.Set("first", static_cast<double>(program->lifetimes[i].first));
      value.Set("last", static_cast<double>(program->lifetimes[i].last));
      values.Set(static_cast<uint32_t>(i), value);
    }
    auto stages = Napi::Array::New(env, program->stages.size());
    for (size_t i = 0; i < program->stages.size(); ++i) {
      const auto& stage = program->stages[i];
      auto entry = Napi::Object::New(env);
      entry.Set("order", name_of(stage.order));
      entry.Set("first", static_cast<double>(stage.first));
      entry.Set("last", static_cast<double>(stage.last));
      stages.Set(static_cast<uint32_t>(i), entry);
    }
    auto out = Napi::Object::New(env);
    out.Set("name", block.name);
    out.Set("rows", static_cast<double>(Executor::rows_for(*program)));
    out.Set("lines", static_cast<double>(program->code.size()));
    out.Set("peak", static_cast<double>(planned.bytes));
    out.Set("peakWithoutReuse", static_cast<double>(Plan::make(program->lifetimes, false).bytes));
    out.Set("stages", stages);
    out.Set("values", values);
    blocks.Set(blocks.Length(), out);
  }
  return blocks;
}

// operations(): the op table, without control flow.
Value operations(const CallbackInfo& info) {
  const auto env = info.Env();
  auto out = Napi::Array::New(env);
  const auto add = [&](Napi::Array& list, std::string_view text) {
    list.Set(list.Length(), Napi::String::New(env, std::string(text)));
  };
  for (const auto& traits : op_table()) {
    if (traits.rows == Rows::control) continue;
    auto inputs = Napi::Array::New(env), attributes = Napi::Array::New(env);
    for (size_t i = 0; i < traits.inputs(); ++i) add(inputs, name_of(traits.in[i]));
    for (size_t bit = 0; bit < attribute_names().size(); ++bit) {
      if (!traits.has(static_cast<uint16_t>(1u << bit))) continue;
      // Several members of one bit stand with a space between.
      std::istringstream names{std::string(attribute_names()[bit])};
      for (std::string name; names >> name;) add(attributes, name);
    }
    auto entry = Napi::Object::New(env);
    entry.Set("name", std::string(traits.name));
    entry.Set("inputs", inputs);
    entry.Set("more", traits.more);
    entry.Set("out", traits.out);
    entry.Set("state", traits.named_state);
    entry.Set("attributes", attributes);
    out.Set(out.Length(), entry);
  }
  return out;
}

// features(): which kernels the engine uses on this CPU.
Value features(const CallbackInfo& info) {
  auto chosen = choose_kernels();
  if (!chosen) throw error_value(info.Env(), chosen.error());
  return Napi::String::New(info.Env(), (*chosen)->name);
}

// cuda(): the CUDA device, its driver and runtime. `reason`: why CUDA cannot be used; empty where it can.
Value cuda(const CallbackInfo& info) {
  const auto env = info.Env();
  const CudaStatus status = cuda_status();
  auto out = Napi::Object::New(env);
  out.Set("built", status.built);
  out.Set("emulated", status.emulated);
  out.Set("reason", status.reason);
  out.Set("name", status.name);
  out.Set("capability",
          status.major == 0 ? Value(env.Null()) : Value(Napi::String::New(env, text(status.major, ".", status.minor))));
  out.Set("total", static_cast<double>(status.total));
  out.Set("free", static_cast<double>(status.free));
  out.Set("driver", status.driver);
  out.Set("runtime", status.runtime);
  return out;
}

}  // namespace continuo::binding
