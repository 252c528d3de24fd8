// The handles that JavaScript has: an engine with its model, contexts, and host executors. Each is a shared pointer
// behind an External, so that a call in flight keeps its objects alive, whatever the garbage collector does.
//
// Threads. All functions run on the JavaScript thread of one environment, except `complete`, which the engine's thread
// calls: it queues a Completion in a thread-safe function and touches no JavaScript.
//
// Teardown. Node runs cleanup hooks in reverse order. The thread-safe function adds a hook when it is made; our hook is
// added later and so runs earlier: it stops the engine and joins its threads while the thread-safe function is still
// valid.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <napi.h>

#include "runtime/scheduler/engine.h"

namespace continuo::binding {

class EngineHandle : public std::enable_shared_from_this<EngineHandle> {
 public:
  static std::shared_ptr<EngineHandle> make(Napi::Env env, size_t threads, double step_target);
  ~EngineHandle() { close(); }

  Engine& engine() { return *engine_; }
  // Not null: the handle is given out once the model is loaded.
  std::shared_ptr<const Model> model() const { return engine_->model(); }

  // The promise of a call that is about to be made. It keeps the event loop alive until it settles, unless it is quiet.
  struct Call {
    std::shared_ptr<EngineHandle> handle;
    Napi::Promise::Deferred deferred;
    bool quiet = false;
  };
  std::shared_ptr<Call> begin(Napi::Env env);
  std::shared_ptr<Call> begin_quietly(Napi::Env env);
  // Undoes `begin` where the engine refused the call.
  void forget();

  using MakeValue = std::function<Napi::Value(Napi::Env, const std::shared_ptr<EngineHandle>&)>;
  // Called by the engine's thread: resolves the call's promise with the value, or rejects it with the error. The
  // engine's thread must move its reference to the call in here and keep no copy: the last owner of an EngineHandle
  // joins the engine's thread, which must not join itself.
  static void complete(std::shared_ptr<Call> call, std::optional<Error> error, MakeValue value);

  bool closed() const { return !engine_; }
  size_t pending() const { return pending_; }
  void close();

 private:
  struct Completion;
  explicit EngineHandle(Napi::Env env) : env_(env) {}
  static void settle(napi_env env, napi_value, void*, void* data);
  static void answer(Napi::Env env, const Completion& completion);
  static void teardown(void* self) { static_cast<EngineHandle*>(self)->close(true); }
  void close(bool tearing_down);

  Napi::Env env_;
  napi_threadsafe_function function_ = nullptr;
  std::unique_ptr<Engine> engine_;
  size_t pending_ = 0;
};

struct ContextHandle {
  std::shared_ptr<EngineHandle> engine;
  std::shared_ptr<Context> context;                  // null once closed
  int64_t reported = 0;                              // bytes reported to the garbage collector
  std::shared_ptr<std::atomic<bool>> adapting = {};  // stops the adaptation that was submitted last
};

struct ExecutorHandle {
  std::shared_ptr<EngineHandle> engine;
  std::shared_ptr<HostExecutor> host;
};

// A JavaScript error with `code` and `message`, as src/engine/native.ts expects it.
Napi::Error error_value(Napi::Env env, const Error& error);

}  // namespace continuo::binding
