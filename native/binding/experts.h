// Expert stores: packing and checking them, and putting one in the place of another (experts/pack.h).
#pragma once

#include <napi.h>

namespace continuo::binding {

Napi::Value pack_experts(const Napi::CallbackInfo& info);
Napi::Value check_experts(const Napi::CallbackInfo& info);
Napi::Value exchange(const Napi::CallbackInfo& info);
// Of a model with a store.
Napi::Value expert_statistics(const Napi::CallbackInfo& info);
Napi::Value warm_experts(const Napi::CallbackInfo& info);
Napi::Value forget_experts(const Napi::CallbackInfo& info);
Napi::Value save_frequencies(const Napi::CallbackInfo& info);
// For measurements.
Napi::Value measure_reads(const Napi::CallbackInfo& info);
Napi::Value drop_pages(const Napi::CallbackInfo& info);
Napi::Value expert_notes(const Napi::CallbackInfo& info);

}  // namespace continuo::binding
