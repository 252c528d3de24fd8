// Functions of the addon over bytes alone: hashes, copies and norms, each as a job.
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value digest(const Napi::CallbackInfo& info);
Napi::Value join(const Napi::CallbackInfo& info);
Napi::Value scatter(const Napi::CallbackInfo& info);
Napi::Value norms(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
