// Expert stores: packing and checking them, and putting one in the place of another (experts/pack.h).
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value pack_experts(const Napi::CallbackInfo& info);
Napi::Value check_experts(const Napi::CallbackInfo& info);
Napi::Value exchange(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
