#include "binding/experts.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <cstdio>
#endif

#include "binding/handles.h"
#include "binding/inspect.h"
#include "binding/job.h"
#include "binding/values.h"
#include "experts/measure.h"
#include "experts/pack.h"
#include "weights/mapped_file.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// Numbers that `places` has for one matrix: index of its file, offset and bytes of its codes, of its scales.
constexpr size_t place_numbers = 5;

struct Report {
  experts::LayerReport found;
};

uint32_t number(const Napi::Object& from, const char* name) { return from.Get(name).As<Napi::Number>().Uint32Value(); }

Value value_of(Napi::Env env, const experts::LayerReport& report) {
  auto out = Napi::Object::New(env);
  const auto set = [&](const char* name, double value) { out.Set(name, value); };
  set("layer", report.layer);
  out.Set("coding", name_of(report.shape.coding));
  set("channels", report.shape.channels);
  set("inner", report.shape.inner);
  set("group", report.shape.group);
  set("fileBytes", static_cast<double>(report.file_bytes));
  set("recordBytes", static_cast<double>(report.record_bytes));
  set("payloadBytes", static_cast<double>(report.payload_bytes));
  set("experts", static_cast<double>(report.experts));
  set("pairs", static_cast<double>(report.pairs));
  set("deltas", static_cast<double>(report.deltas));
  set("deltaBytes", static_cast<double>(report.bytes_of_deltas));
  auto trits = Napi::Object::New(env);
  trits.Set("mean", report.trits.mean);
  trits.Set("least", report.trits.least);
  trits.Set("most", report.trits.most);
  out.Set("trits", trits);
  out.Set("digest", report.digest);
  return out;
}

Value report_later(Napi::Env env, std::function<Result<experts::LayerReport>()> run) {
  Job job;
  auto report = std::make_shared<Report>();
  job.body = [run = std::move(run), report]() -> Status {
    auto found = run();
    if (!found) return found.error();
    report->found = std::move(*found);
    return Done{};
  };
  job.value = [report](Napi::Env settled) { return value_of(settled, report->found); };
  return promise_of(env, std::move(job));
}

}  // namespace

// packExperts({ path, layer, coding, channels, inner, group, columns, rows, files, places, threads }) →
// Promise<report>. `places`: a Float64Array, of each expert of gate, up and down: index of the file, offset and bytes
// of the codes, offset and bytes of the scales.
Value pack_experts(const CallbackInfo& info) {
  const auto env = info.Env();
  const auto asked = info[0].As<Napi::Object>();
  const std::string path = asked.Get("path").As<Napi::String>();
  const std::string coding = asked.Get("coding").As<Napi::String>();
  const auto known = experts::coding_named(coding);
  if (!known) throw error_value(env, internal("no coding is named ", coding, "."));
  const experts::ExpertShape shape{*known, number(asked, "channels"), number(asked, "inner"), number(asked, "group")};
  const uint32_t layer = number(asked, "layer"), threads = number(asked, "threads");
  const std::pair torus(number(asked, "columns"), number(asked, "rows"));
  const auto given = asked.Get("places").As<Napi::Float64Array>();
  std::vector<double> places(given.Data(), given.Data() + given.ElementLength());
  if (places.empty() || places.size() % (place_numbers * experts::matrices) != 0)
    throw error_value(env, internal("places of ", places.size(), " numbers."));
  return report_later(env, [=, files = paths_of(asked.Get("files"))]() -> Result<experts::LayerReport> {
    std::vector<MappedFile> mapped;
    for (const auto& file : files) {
      auto opened = MappedFile::open(file);
      if (!opened) return opened.error();
      mapped.push_back(std::move(*opened));
    }
    std::vector<experts::ExpertSource> sources(places.size() / place_numbers / experts::matrices);
    if (torus.first != 0 && uint64_t{torus.first} * torus.second != sources.size())
      return internal("a torus of ", torus.first, " by ", torus.second, " for ", sources.size(), " experts.");
    for (size_t i = 0; i < sources.size() * experts::matrices; ++i) {
      const double* place = places.data() + i * place_numbers;
      const auto bytes = mapped.at(static_cast<size_t>(place[0])).bytes();
      const auto slice = [&](double offset, double size) -> std::optional<std::span<const std::byte>> {
        const auto from = static_cast<uint64_t>(offset), count = static_cast<uint64_t>(size);
        if (from > bytes.size() || count > bytes.size() - from) return std::nullopt;
        return bytes.subspan(static_cast<size_t>(from), static_cast<size_t>(count));
      };
      const auto codes = slice(place[1], place[2]), scales = slice(place[3], place[4]);
      if (!codes || !scales)
        return Error{Code::refused, text(files[static_cast<size_t>(place[0])],
                                         " became shorter while its experts were packed. Pack them again.")};
      sources[i / experts::matrices][i % experts::matrices] = {*codes, *scales};
    }
    ThreadPool pool(threads);
    return experts::pack_layer(path, layer, shape, torus, sources, pool);
  });
}

// checkExperts(path, threads) → Promise<report>.
Value check_experts(const CallbackInfo& info) {
  const std::string path = info[0].As<Napi::String>();
  const uint32_t threads = info[1].As<Napi::Number>();
  return report_later(info.Env(), [path, threads] {
    ThreadPool pool(threads);
    return experts::check_layer(path, pool);
  });
}

// exchange(a, b): puts each of two paths in the place of the other in one step. False where the file system or the
// system cannot.
Value exchange(const CallbackInfo& info) {
  const std::string a = info[0].As<Napi::String>(), b = info[1].As<Napi::String>();
#ifdef __linux__
  constexpr unsigned exchange_both = 2;  // RENAME_EXCHANGE, which headers before glibc 2.28 lack
  const auto failed = ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), exchange_both);
#elif defined(RENAME_SWAP)
  const auto failed = ::renamex_np(a.c_str(), b.c_str(), RENAME_SWAP);
#else
  const auto failed = -1;
#endif
  return Napi::Boolean::New(info.Env(), failed == 0);
}

namespace {

// Null: the model has no store.
experts::ExpertCache* expert_cache_of(const Value& engine) {
  const auto model = open_engine(engine)->engine().model();
  return model ? model->experts.get() : nullptr;
}

}  // namespace

// expertStatistics(engine): its CacheStatistics; null without a store.
Value expert_statistics(const CallbackInfo& info) {
  const auto* cache = expert_cache_of(info[0]);
  if (!cache) return info.Env().Null();
  const auto found = cache->statistics();
  auto out = Napi::Object::New(info.Env());
  const auto set = [&](const char* name, auto value) { out.Set(name, static_cast<double>(value)); };
  set("uses", found.uses);
  set("hits", found.hits);
  set("prefetched", found.prefetched);
  set("demandBytes", found.demand_bytes);
  set("aheadBytes", found.ahead_bytes);
  set("warmBytes", found.warm_bytes);
  set("deltaBytes", found.delta_bytes);
  set("reads", found.reads);
  set("waitSeconds", found.wait_seconds);
  set("readSeconds", found.read_seconds);
  set("retries", found.retries);
  set("failedChecks", found.failed_checks);
  set("failedReads", found.failed_reads);
  set("deltasUsed", found.deltas_used);
  set("deltasRefused", found.deltas_refused);
  set("evictions", found.evictions);
  set("dropped", found.dropped);
  set("residentBytes", found.resident_bytes);
  set("resident", found.resident);
  set("bound", found.bound);
  auto ahead = Napi::Array::New(info.Env(), found.ahead.size());
  for (uint32_t k = 0; k < found.ahead.size(); ++k) {
    auto of = Napi::Object::New(info.Env());
    of.Set("predictions", static_cast<double>(found.ahead[k].predictions));
    of.Set("right", static_cast<double>(found.ahead[k].right));
    of.Set("alreadyResident", static_cast<double>(found.ahead[k].already_resident));
    of.Set("inTime", static_cast<double>(found.ahead[k].in_time));
    of.Set("useless", static_cast<double>(found.ahead[k].useless));
    ahead.Set(k, of);
  }
  out.Set("ahead", ahead);
  return out;
}

// warmExperts(engine): begins to read the most frequent ones.
Value warm_experts(const CallbackInfo& info) {
  if (auto* cache = expert_cache_of(info[0])) cache->warm();
  return info.Env().Undefined();
}

// forgetExperts(engine): the next ones come from the disk.
Value forget_experts(const CallbackInfo& info) {
  if (auto* cache = expert_cache_of(info[0])) cache->forget();
  return info.Env().Undefined();
}

// saveFrequencies(engine): writes them beside the store. Throws where that fails.
Value save_frequencies(const CallbackInfo& info) {
  if (auto* cache = expert_cache_of(info[0])) {
    if (auto saved = cache->save_frequencies(); !saved) throw error_value(info.Env(), saved.error());
  }
  return info.Env().Undefined();
}

// expertNotes(engine): sentences for the log since the last call.
Value expert_notes(const CallbackInfo& info) {
  auto out = Napi::Array::New(info.Env());
  if (auto* cache = expert_cache_of(info[0])) {
    for (const auto& note : cache->take_notes()) out.Set(out.Length(), note);
  }
  return out;
}

// measureReads(path, reads, depth, one, backend) → Promise<{ bytes, seconds, direct }>: records of a layer's file read
// at random.
Value measure_reads(const CallbackInfo& info) {
  const std::string path = info[0].As<Napi::String>(), backend = info[4].As<Napi::String>();
  const bool one = info[3].ToBoolean();
  const size_t reads = info[1].As<Napi::Number>().Uint32Value(), depth = info[2].As<Napi::Number>().Uint32Value();
  auto rate = std::make_shared<experts::ReadRate>();
  Job job;
  job.body = [=]() -> Status {
    auto found = experts::measure_reads(path, reads, depth, one,
                                        backend == "threads" ? experts::Backend::threads : experts::Backend::automatic);
    if (!found) return found.error();
    *rate = *found;
    return Done{};
  };
  job.value = [rate](Napi::Env env) -> Value {
    auto out = Napi::Object::New(env);
    out.Set("bytes", static_cast<double>(rate->bytes));
    out.Set("seconds", rate->seconds);
    out.Set("direct", rate->direct);
    return out;
  };
  return promise_of(info.Env(), std::move(job));
}

// dropPages(path): drops a file's pages from the page cache.
Value drop_pages(const CallbackInfo& info) {
  experts::drop_pages(info[0].As<Napi::String>());
  return info.Env().Undefined();
}

}  // namespace continuo::binding
