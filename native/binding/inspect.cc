#include "binding/inspect.h"

#include <limits>
#include <sstream>
#include <utility>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cuda/cuda.h"
#include "binding/handles.h"
#include "compile/program.h"
#include "graph/ngram.h"
#include "graph/ops.h"
#include "runtime/executor/executor.h"
#include "weights/tensor_files.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// Makes JavaScript values of GGUF metadata: numbers, BigInts where a number would not be exact, strings, booleans,
// arrays.
class Values {
 public:
  explicit Values(Napi::Env env) : env_(env) {}

  Value of(const GgufEntry& entry) {
    visit_gguf(entry.kind, entry.value.data(), *this);
    return result_;
  }

  void whole(int64_t value) {
    constexpr int64_t exact = (int64_t{1} << 53) - 1;
    if (value >= -exact && value <= exact)
      put(Napi::Number::New(env_, static_cast<double>(value)));
    else
      put(Napi::BigInt::New(env_, value));
  }
  void large(uint64_t value) {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      whole(static_cast<int64_t>(value));
    else
      put(Napi::BigInt::New(env_, value));
  }
  void real(double value) { put(Napi::Number::New(env_, value)); }
  void boolean(bool value) { put(Napi::Boolean::New(env_, value)); }
  void string(std::string_view value) { put(Napi::String::New(env_, value.data(), value.size())); }
  void begin(uint64_t count) { open_.emplace_back(Napi::Array::New(env_, static_cast<size_t>(count)), 0); }
  void end() {
    const Value list = open_.back().first;
    open_.pop_back();
    put(list);
  }

 private:
  void put(Value value) {
    if (open_.empty()) {
      result_ = value;
    } else {
      auto& [list, next] = open_.back();
      list.Set(next++, value);
    }
  }

  Napi::Env env_;
  std::vector<std::pair<Napi::Array, uint32_t>> open_;
  Value result_;
};

}  // namespace

std::vector<std::string> paths_of(const Value& value) {
  const auto list = value.As<Napi::Array>();
  std::vector<std::string> out;
  for (uint32_t i = 0; i < list.Length(); ++i) out.push_back(list.Get(i).As<Napi::String>());
  return out;
}

// inspect(paths): { tensors, files }: the tensors that the headers of a model's files list, and of each file its format
// and, of a GGUF file, its metadata as pairs of key and value.
Value inspect(const CallbackInfo& info) {
  const auto env = info.Env();
  auto opened = TensorFiles::open(paths_of(info[0]));
  if (!opened) throw error_value(env, opened.error());
  const auto& all = opened->tensors();
  auto tensors = Napi::Array::New(env, all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& tensor = all[i];
    auto shape = Napi::Array::New(env, tensor.shape.size());
    for (size_t d = 0; d < tensor.shape.size(); ++d)
      shape.Set(static_cast<uint32_t>(d), static_cast<double>(tensor.shape[d]));
    auto entry = Napi::Object::New(env);
    entry.Set("name", tensor.name);
    entry.Set("dtype", tensor.dtype);
    entry.Set("shape", shape);
    entry.Set("file", static_cast<double>(tensor.file));
    entry.Set("offset", static_cast<double>(tensor.offset));
    entry.Set("bytes", static_cast<double>(tensor.data.size()));
    tensors.Set(static_cast<uint32_t>(i), entry);
  }
  auto files = Napi::Array::New(env);
  for (const auto& read : opened->files()) {
    auto metadata = Napi::Array::New(env, read.metadata.size());
    for (size_t i = 0; i < read.metadata.size(); ++i) {
      auto pair = Napi::Array::New(env, 2);
      pair.Set(uint32_t{0}, read.metadata[i].key);
      pair.Set(uint32_t{1}, Values(env).of(read.metadata[i]));
      metadata.Set(static_cast<uint32_t>(i), pair);
    }
    auto file = Napi::Object::New(env);
    file.Set("format", name_of(read.format));
    file.Set("metadata", read.format == FileFormat::gguf ? Value(metadata) : Value(env.Null()));
    files.Set(files.Length(), file);
  }
  auto out = Napi::Object::New(env);
  out.Set("tensors", tensors);
  out.Set("files", files);
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

// ngram(kind, slots): the sizes of the tables of an ngram memory of "bytes", "small" or "subwords" with so many slots,
// and of what a package may begin it with: which parts of the mixture that are.
Value ngram(const CallbackInfo& info) {
  const auto env = info.Env();
  const std::string name = info[0].As<Napi::String>();
  const auto slots = static_cast<size_t>(info[1].As<Napi::Number>().Int64Value());
  const auto kind = name == "small"      ? ngram::Kind::small
                    : name == "subwords" ? ngram::Kind::subwords
                                         : ngram::Kind::bytes;
  auto out = Napi::Object::New(env);
  out.Set("text", static_cast<double>(ngram::words_of(kind, slots)));
  out.Set("mixture", static_cast<double>(ngram::mixture_numbers(kind)));
  out.Set("learned", static_cast<double>(ngram::learned_numbers(kind)));
  const auto part = [&](size_t from, size_t count) {
    auto of = Napi::Object::New(env);
    of.Set("from", static_cast<double>(from));
    of.Set("count", static_cast<double>(count));
    return of;
  };
  const auto parts = [&]<class Mixture>(Mixture) {
    auto list = Napi::Array::New(env);
    list.Set(0u, part(Mixture::weights, Mixture::learned_weights));
    list.Set(1u, part(Mixture::dense, Mixture::learned_logits));
    return list;
  };
  out.Set("parts", kind == ngram::Kind::small ? parts(ngram::small_mixture{}) : parts(ngram::mixture{}));
  return out;
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
