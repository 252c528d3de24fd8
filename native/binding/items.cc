#include "binding/items.h"

namespace continuo::binding {

using Napi::Value;

namespace {

std::string string_of(const Value& value) {
  const auto bytes = value.As<Napi::Uint8Array>();
  return {reinterpret_cast<const char*>(bytes.Data()), bytes.ByteLength()};
}

StopStrings stop_of(const Napi::Object& object) {
  StopStrings stop;
  stop.bytes = unwrap<std::shared_ptr<const TokenBytes>>(object.Get("tokenBytes"), token_bytes_tag);
  stop.tail = string_of(object.Get("tail"));
  const auto list = object.Get("strings").As<Napi::Array>();
  for (uint32_t i = 0; i < list.Length(); ++i) {
    if (auto string = string_of(list.Get(i)); !string.empty()) stop.strings.push_back(std::move(string));
  }
  return stop;
}

Shaping shaping_of(const Napi::Object& object) {
  const auto number = [&](const char* name) { return object.Get(name).As<Napi::Number>().FloatValue(); };
  Shaping shaping{{}, number("repetition"), number("presence"), number("frequency")};
  const auto ids = object.Get("biased").As<Napi::Int32Array>();
  const auto biases = object.Get("biases").As<Napi::Float32Array>();
  for (size_t i = 0; i < ids.ElementLength(); ++i) shaping.bias.emplace_back(ids[i], biases[i]);
  const auto counted = object.Get("counted").As<Napi::Int32Array>();
  const auto counts = object.Get("counts").As<Napi::Uint32Array>();
  shaping.counts.reserve(counted.ElementLength());
  for (size_t i = 0; i < counted.ElementLength(); ++i) shaping.counts.emplace(counted[i], counts[i]);
  return shaping;
}

std::variant<MemoryRequest, AdaptRequest> request_of(const Napi::Object& asked) {
  if (const auto adapt = asked.Get("adapt"); adapt.IsObject()) {
    const auto object = adapt.As<Napi::Object>();
    return AdaptRequest{object.Get("evaluations").As<Napi::Number>().Uint32Value(), u64_of(object.Get("seed"))};
  }
  MemoryRequest out{asked.Get("archive").ToBoolean()};
  if (const auto blocks = asked.Get("blocks"); blocks.IsTypedArray()) {
    const auto list = blocks.As<Napi::Int32Array>();
    out.blocks.emplace(list.Data(), list.Data() + list.ElementLength());
  }
  if (const auto plain = asked.Get("plain"); plain.IsObject()) {
    const auto numbers = [&](const char* name) {
      const auto of = plain.As<Napi::Object>().Get(name).As<Napi::Float32Array>();
      return std::vector<float>(of.Data(), of.Data() + of.ElementLength());
    };
    out.plain = PlainCache{numbers("keys"), numbers("values"), numbers("hidden")};
  }
  return out;
}

const char* name_of(Ended ended) {
  switch (ended) {
    case Ended::end_token: return "eos";
    case Ended::stop_string: return "stop";
    case Ended::positions: return "positions";
    case Ended::not_early: break;
  }
  return nullptr;
}

std::string_view name_of(MemoryEvent::Type type) {
  switch (type) {
    case MemoryEvent::Type::segment: return "segment";
    case MemoryEvent::Type::release: return "release";
    case MemoryEvent::Type::archive: return "archive";
    case MemoryEvent::Type::tombstone: return "tombstone";
    case MemoryEvent::Type::summarize: return "summarize";
    case MemoryEvent::Type::retrieve: return "retrieve";
    case MemoryEvent::Type::inject: return "inject";
    case MemoryEvent::Type::node: return "node";
    case MemoryEvent::Type::split: return "split";
    case MemoryEvent::Type::merge: return "merge";
  }
  return {};
}

// { pulse, type, … }: the members that an event of the type has.
Value event_value(Napi::Env env, const MemoryEvent& event) {
  using enum MemoryEvent::Type;
  auto out = Napi::Object::New(env);
  const auto number = [&](const char* name, auto value) { out.Set(name, static_cast<double>(value)); };
  const auto list = [&](const auto& numbers) {
    auto array = Napi::Array::New(env, numbers.size());
    for (uint32_t i = 0; i < numbers.size(); ++i) array.Set(i, static_cast<double>(numbers[i]));
    return array;
  };
  number("pulse", event.pulse);
  out.Set("type", std::string(name_of(event.type)));
  if (event.block >= 0) number("block", event.block);
  if (event.type == segment) number("distance", event.distance);
  if (!event.reason.empty()) out.Set("reason", std::string(event.reason));
  if (event.type == archive) {
    number("k_norm", event.k_norm);
    number("v_norm", event.v_norm);
  }
  if (event.type == tombstone) {
    auto spans = Napi::Array::New(env, event.spans.size());
    for (uint32_t i = 0; i < event.spans.size(); ++i) spans.Set(i, list(event.spans[i]));
    out.Set("spans", spans);
  }
  if (event.type == retrieve || event.type == inject) out.Set("blocks", list(event.blocks));
  if (event.type == retrieve && !event.spans.empty()) out.Set("span", list(event.spans.front()));
  if (event.type == inject) number("slots", event.slots);
  if (event.type == node || event.type == split) number("virtual", event.slot);
  if (event.type == node) out.Set("new", event.fresh);
  if (event.type == split) {
    number("new", event.other);
    out.Set("moved", list(event.blocks));
  }
  if (event.type == merge) {
    number("into", event.slot);
    number("from", event.other);
  }
  return out;
}

// A number that is there, else null.
template <class T> Value maybe(Napi::Env env, const std::optional<T>& number) {
  if (!number) return env.Null();
  return Napi::Number::New(env, static_cast<double>(*number));
}

Value draw_value(Napi::Env env, const DrawNote& note) {
  auto out = Napi::Object::New(env);
  out.Set("fired", note.fired);
  out.Set("entropy", static_cast<double>(note.entropy));
  out.Set("jsd", maybe(env, note.jsd));
  out.Set("agreed", note.agreed ? Value(Napi::Boolean::New(env, *note.agreed)) : Value(env.Null()));
  if (note.recalled) {
    auto recalled = Napi::Object::New(env);
    recalled.Set("token", note.recalled->token);
    recalled.Set("distance", note.recalled->distance);
    recalled.Set("bank", static_cast<double>(note.recalled->bank));
    recalled.Set("hit", note.recalled->hit);
    out.Set("hdm", recalled);
  } else {
    out.Set("hdm", env.Null());
  }
  out.Set("weight", maybe(env, note.weight));
  return out;
}

Value adapted_value(Napi::Env env, const AdaptReport& report) {
  auto out = Napi::Object::New(env);
  out.Set("tokens", static_cast<double>(report.tokens));
  out.Set("evaluations", report.evaluations);
  out.Set("bound", static_cast<double>(report.bound));
  out.Set("before", report.before);
  out.Set("after", report.after);
  auto stages = Napi::Array::New(env, report.stages.size());
  for (uint32_t i = 0; i < report.stages.size(); ++i) {
    const auto& from = report.stages[i];
    auto stage = Napi::Object::New(env);
    stage.Set("stage", from.router ? "router" : "adapters");
    stage.Set("was", from.was);
    stage.Set("now", from.now);
    stage.Set("accepted", from.accepted);
    auto probes = Napi::Array::New(env, from.probes.size());
    for (uint32_t k = 0; k < from.probes.size(); ++k) probes.Set(k, from.probes[k]);
    stage.Set("probes", probes);
    stages.Set(i, stage);
  }
  out.Set("stages", stages);
  return out;
}

}  // namespace

Item item_of(const EngineRef& engine, const Napi::Object& object) {
  auto context = open_context(object.Get("context"));
  if (context->engine != engine)
    throw error_value(object.Env(), {Code::misuse, "the context belongs to another model."});
  Item item;
  item.context = context->context;
  const auto tokens = object.Get("tokens").As<Napi::Int32Array>();
  item.tokens.assign(tokens.Data(), tokens.Data() + tokens.ElementLength());
  if (const auto request = object.Get("request"); request.IsObject()) {
    item.request = request_of(request.As<Napi::Object>());
    if (auto* adapt = std::get_if<AdaptRequest>(&*item.request)) {
      context->adapting = std::make_shared<std::atomic<bool>>(false);
      adapt->stop = context->adapting;
    }
  }
  item.nats = object.Get("nats").ToBoolean();
  item.hidden = object.Get("hidden").ToBoolean();
  item.perspectives = object.Get("perspectives").ToBoolean();
  item.count = object.Get("count").As<Napi::Number>().Uint32Value();
  if (item.count > 0) {
    item.sampling = {object.Get("temperature").As<Napi::Number>().FloatValue(),
                     object.Get("topK").As<Napi::Number>().Uint32Value(),
                     object.Get("topP").As<Napi::Number>().DoubleValue(), u64_of(object.Get("seed")),
                     object.Get("minP").As<Napi::Number>().FloatValue()};
    item.top_logprobs = object.Get("topLogprobs").As<Napi::Number>().Uint32Value();
    if (const auto shaping = object.Get("shaping"); shaping.IsObject())
      item.shaping = shaping_of(shaping.As<Napi::Object>());
    if (const auto allowed = object.Get("allowed"); allowed.IsTypedArray()) {
      const auto bits = allowed.As<Napi::BigUint64Array>();
      item.allowed.assign(bits.Data(), bits.Data() + bits.ElementLength());
    }
    const auto ends = object.Get("endTokens").As<Napi::Int32Array>();
    item.end_tokens.assign(ends.Data(), ends.Data() + ends.ElementLength());
    if (const auto stop = object.Get("stop"); stop.IsObject()) item.stop = stop_of(stop.As<Napi::Object>());
    item.more = object.Get("more").ToBoolean();
  }
  return item;
}

Value result_value(Napi::Env env, const ItemResult& result) {
  auto out = Napi::Object::New(env);
  out.Set("nats", array_of<Napi::Float32Array>(env, result.nats));
  if (!result.hidden_last.empty()) {
    auto hidden = Napi::Object::New(env);
    hidden.Set("sum", array_of<Napi::Float64Array>(env, result.hidden_sum));
    hidden.Set("last", array_of<Napi::Float32Array>(env, result.hidden_last));
    out.Set("hidden", hidden);
  }
  out.Set("generated", array_of<Napi::Int32Array>(env, result.generated));
  out.Set("logprobs", array_of<Napi::Float32Array>(env, result.logprobs));
  if (!result.top.empty()) {
    out.Set("top", array_of<Napi::Int32Array>(env, result.top));
    out.Set("topLogprobs", array_of<Napi::Float32Array>(env, result.top_logprobs));
  }
  const char* ended = name_of(result.ended);
  out.Set("ended", ended ? Value(Napi::String::New(env, ended)) : Value(env.Null()));
  if (!result.events.empty()) {
    auto events = Napi::Array::New(env, result.events.size());
    for (uint32_t i = 0; i < result.events.size(); ++i) events.Set(i, event_value(env, result.events[i]));
    out.Set("events", events);
  }
  if (!result.draws.empty()) {
    auto draws = Napi::Array::New(env, result.draws.size());
    for (uint32_t i = 0; i < result.draws.size(); ++i) draws.Set(i, draw_value(env, result.draws[i]));
    out.Set("draws", draws);
  }
  if (!result.experts.empty()) out.Set("experts", array_of<Napi::Int32Array>(env, result.experts));
  if (result.adapted) out.Set("adapted", adapted_value(env, *result.adapted));
  out.Set("head", head_value(env, result.head));
  return out;
}

}  // namespace continuo::binding
