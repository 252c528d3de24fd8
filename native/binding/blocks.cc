#include "binding/blocks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "binding/positions.h"
#include "binding/values.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

BlockCache& cache_of(const Value& engine) {
  const auto& cache = open_engine(engine)->model()->sleepy_blocks;
  if (!cache) throw error_value(engine.Env(), internal("no block of this model ever sleeps."));
  return *cache;
}

uint64_t number_of(const Value& value) { return static_cast<uint64_t>(value.As<Napi::Number>().Int64Value()); }

std::span<const std::byte> bytes_of(const Value& value) {
  const auto array = value.As<Napi::Uint8Array>();
  return {reinterpret_cast<const std::byte*>(array.Data()), array.ByteLength()};
}

Napi::Float64Array numbers_of(Napi::Env env, const std::vector<uint64_t>& numbers) {
  auto out = Napi::Float64Array::New(env, numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) out[i] = static_cast<double>(numbers[i]);
  return out;
}

}  // namespace

// bring(context, from, to) → Promise<void>: the blocks of these positions are awake then, and stay so until they were
// copied. Rejects where one of them cannot be had.
Value bring(const CallbackInfo& info) {
  const auto handle = readable_context(info[0]);
  const auto& context = handle->context;
  const auto tickets = context->want(positions_of(*context, info[1], info[2]));
  auto call = handle->engine->begin(info.Env());
  const auto promise = call->deferred.Promise();
  // One more than the tickets: whoever comes last settles the call, be it here.
  auto left = std::make_shared<std::atomic<size_t>>(tickets.size() + 1);
  auto waiting = std::make_shared<std::shared_ptr<EngineHandle::Call>>(std::move(call));
  const auto arrived = [left, waiting, tickets] {
    if (--*left > 0) return;
    const auto refused =
        std::find_if(tickets.begin(), tickets.end(), [](const auto& ticket) { return ticket->error(); });
    EngineHandle::complete(std::move(*waiting), refused == tickets.end() ? std::nullopt : (*refused)->error(),
                           [](Napi::Env env, const EngineRef&) { return env.Undefined(); });
  };
  for (const auto& ticket : tickets) ticket->on_open(arrived);
  arrived();
  return promise;
}

// holdBlocks(context): a handle on its full blocks that may sleep, which stay when the context is closed.
Value hold_blocks(const CallbackInfo& info) {
  return wrap(info.Env(), std::make_shared<Context::Sleepy>(readable_context(info[0])->context->sleepy()),
              held_blocks_tag);
}

// dropBlocks(held): they go where no context has them. To be called once.
Value drop_blocks(const CallbackInfo& info) {
  unwrap<HeldBlocks>(info[0], held_blocks_tag)->clear();
  return info.Env().Undefined();
}

// blockNumbers(context): of its full blocks that may sleep, in order.
Value block_numbers(const CallbackInfo& info) {
  std::vector<uint64_t> numbers;
  for (const auto& own : readable_context(info[0])->context->sleepy())
    for (const auto& block : own) numbers.push_back(block->sleepy()->number);
  return numbers_of(info.Env(), numbers);
}

// blockNews(engine) → Promise<{ full, used, wanted, gone }>: numbers, as soon as there are some; none at all after
// stopBlockNews. It does not keep the event loop alive.
Value block_news(const CallbackInfo& info) {
  auto& cache = cache_of(info[0]);
  auto call = open_engine(info[0])->begin_quietly(info.Env());
  const auto promise = call->deferred.Promise();
  cache.listen([call = std::move(call)](BlockCache::News found) mutable {
    auto news = std::make_shared<BlockCache::News>(std::move(found));
    EngineHandle::complete(std::move(call), std::nullopt, [news](Napi::Env env, const EngineRef&) -> Value {
      auto out = Napi::Object::New(env);
      out.Set("full", numbers_of(env, news->full));
      out.Set("used", numbers_of(env, news->used));
      out.Set("wanted", numbers_of(env, news->wanted));
      out.Set("gone", numbers_of(env, news->gone));
      return out;
    });
  });
  return promise;
}

Value stop_block_news(const CallbackInfo& info) {
  cache_of(info[0]).listen(nullptr);
  return info.Env().Undefined();
}

// sleepBlock(engine, number): whether it sleeps now.
Value sleep_block(const CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), cache_of(info[0]).sleep(number_of(info[1])));
}

// wakeBlock(engine, number, bytes): whether the bytes have the length of the block.
Value wake_block(const CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), cache_of(info[0]).wake(number_of(info[1]), bytes_of(info[2])));
}

// refuseBlock(engine, number, message): the block cannot be had.
Value refuse_block(const CallbackInfo& info) {
  cache_of(info[0]).refuse(number_of(info[1]), {Code::unavailable, info[2].As<Napi::String>().Utf8Value()});
  return info.Env().Undefined();
}

// copyBlock(engine, number): its bytes; null where it sleeps, or is gone.
Value copy_block(const CallbackInfo& info) {
  const auto bytes = cache_of(info[0]).copy(number_of(info[1]));
  if (!bytes) return info.Env().Null();
  auto out = Napi::Uint8Array::New(info.Env(), bytes->size());
  std::memcpy(out.Data(), bytes->data(), bytes->size());
  return out;
}

}  // namespace continuo::binding
