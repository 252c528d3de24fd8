"""Small configurations of each family, several settings each: what published checkpoints use, and what differs between them."""

DECODER = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SLIDING_FULL = ["sliding_attention", "full_attention", "sliding_attention"]

GRANITE = {
    **DECODER,
    "num_hidden_layers": 4,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
    "shared_intermediate_size": 40,
    "intermediate_size": 24,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
    "embedding_multiplier": 12.0,
    "logits_scaling": 3.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.0156,
    "position_embedding_type": "nope",
}
FALCON = {
    **DECODER,
    "head_dim": 8,
    "mamba_d_ssm": 48,
    "mamba_n_heads": 6,
    "mamba_d_head": 8,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_rms_norm": False,
    "mamba_norm_before_gate": False,
}
# The factors of tiiuae/Falcon-H1-0.5B-Base, rounded.
FACTORS = {
    "attention_in_multiplier": 1.0,
    "attention_out_multiplier": 0.9375,
    "embedding_multiplier": 5.656854249492381,
    "key_multiplier": 0.390625,
    "lm_head_multiplier": 0.0390625,
    "mlp_multipliers": [0.8838834764831845, 0.5859375],
    "ssm_in_multiplier": 1.25,
    "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
    "ssm_out_multiplier": 0.23570226039551587,
}
NEMOTRON = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "n_groups": 2,
    "chunk_size": 16,
    # transformers raises every step to time_step_min; the kernels that the models are trained with, vLLM and llama.cpp do not.
    "time_step_min": 1e-30,
}
NEMOTRON_EXPERTS = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
}
NEOX = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
NEO = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_layers": 4,
    "num_heads": 4,
    "max_position_embeddings": 128,
    "attention_types": [[["global", "local"], 2]],
    "window_size": 8,
}
DELTA = {
    **DECODER,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
WIDE_KEYS = {"linear_key_head_dim": 24, "linear_value_head_dim": 10}
WIDE_VALUES = {"linear_key_head_dim": 9, "linear_value_head_dim": 20}
DELTA_EXPERTS = {**EXPERTS, "shared_expert_intermediate_size": 24}
MAMBA = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_heads": 8,
    "head_dim": 8,
    "state_size": 16,
    "expand": 2,
    "n_groups": 1,
    "chunk_size": 16,
}
LFM = {**DECODER, "num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"]}

# (type, setting, configuration)
CASES = [
    ("granitemoehybrid", "dense, without positions", GRANITE),
    ("granitemoehybrid", "experts, groups", {**GRANITE, "num_local_experts": 6, "num_experts_per_tok": 2, "mamba_n_groups": 2}),
    ("granitemoehybrid", "rope, biases", {**GRANITE, "position_embedding_type": "rope", "attention_bias": True, "mamba_proj_bias": True, "mamba_conv_bias": False}),
    ("granitemoehybrid", "tied, d_head auto", {**GRANITE, "tie_word_embeddings": True, "mamba_d_head": "auto"}),
    ("granitemoehybrid", "attention alone, experts, rope", {**GRANITE, "layer_types": ["attention"] * 4, "num_local_experts": 6, "num_experts_per_tok": 3, "position_embedding_type": "rope"}),
    ("falcon_h1", "plain", FALCON),
    ("falcon_h1", "the factors of the 0.5B", {**FALCON, **FACTORS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e11}}),
    ("falcon_h1", "norm after the gate, groups", {**FALCON, "mamba_rms_norm": True, "mamba_n_groups": 2}),
    ("falcon_h1", "norm before the gate, groups", {**FALCON, "mamba_rms_norm": True, "mamba_norm_before_gate": True, "mamba_n_groups": 2}),
    ("falcon_h1", "biases, tied", {**FALCON, "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True, "tie_word_embeddings": True}),
    ("nemotron_h", "M-M*-M", {**NEMOTRON, "hybrid_override_pattern": "M-M*-M"}),
    ("nemotron_h", "one group, heads of another width", {**NEMOTRON, "hybrid_override_pattern": "M*-M", "n_groups": 1, "head_dim": 12}),
    ("nemotron_h", "experts", {**NEMOTRON, **NEMOTRON_EXPERTS, "hybrid_override_pattern": "MEM*E"}),
    ("nemotron_h", "experts, groups of them", {**NEMOTRON, **NEMOTRON_EXPERTS, "n_group": 2, "topk_group": 1, "hybrid_override_pattern": "ME*E"}),
    ("nemotron_h", "biases", {**NEMOTRON, "hybrid_override_pattern": "M-*", "use_bias": True, "mlp_bias": True, "mamba_proj_bias": True}),
    ("gpt_neox", "Pythia", NEOX),
    ("gpt_neox", "one after the other, all channels turn, tied", {**NEOX, "use_parallel_residual": False, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}, "tie_word_embeddings": True}),
    ("gpt_neox", "gelu_new, half of the channels turn", {**NEOX, "hidden_act": "gelu_new", "rope_parameters": {"rope_type": "default", "rope_theta": 25000.0, "partial_rotary_factor": 0.5}}),
    ("gpt_neox", "gelu_fast, linear rope", {**NEOX, "hidden_act": "gelu_fast", "rope_parameters": {**LINEAR, "partial_rotary_factor": 0.5}}),
    ("gpt_neox", "without biases of attention", {**NEOX, "attention_bias": False}),
    ("gpt_neo", "TinyStories", NEO),
    ("gpt_neo", "global alone, inner size", {**NEO, "attention_types": [[["global"], 4]], "intermediate_size": 48}),
    ("gpt_neo", "local first, untied", {**NEO, "attention_types": [[["local"], 1], [["global", "local"], 1], [["local"], 1]], "tie_word_embeddings": False}),
    ("llama", "plain", DECODER),
    ("llama", "Llama 3's rope, tied, heads of another width", {**DECODER, "rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 12}),
    ("llama", "yarn, biases", {**DECODER, "rope_parameters": YARN, "attention_bias": True, "mlp_bias": True}),
    ("llama", "linear rope", {**DECODER, "rope_parameters": LINEAR}),
    ("mistral", "a window", {**DECODER, "sliding_window": 8}),
    ("qwen2", "plain", DECODER),
    ("qwen2", "windows of the later layers", {**DECODER, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    ("qwen3", "plain", {**DECODER, "head_dim": 16}),
    ("qwen3", "yarn, biases, tied", {**DECODER, "head_dim": 16, "attention_bias": True, "rope_parameters": YARN, "tie_word_embeddings": True}),
    ("qwen3_moe", "divided", {**DECODER, **EXPERTS, "head_dim": 16, "norm_topk_prob": True}),
    ("qwen3_moe", "as they are, dense layers between", {**DECODER, **EXPERTS, "head_dim": 16, "norm_topk_prob": False, "decoder_sparse_step": 2}),
    ("mixtral", "plain", {**DECODER, "num_local_experts": 6, "num_experts_per_tok": 2}),
    ("mixtral", "a window", {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 3, "sliding_window": 8}),
    ("gemma3_text", "windows", {**DECODER, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "layer_types": SLIDING_FULL}),
    ("gemma3_text", "soft cap, another scale", {**DECODER, "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 8, "layer_types": SLIDING_FULL, "final_logit_softcapping": 5.0, "attention_bias": True}),
    ("smollm3", "layers without rope", {**DECODER, "num_hidden_layers": 4, "no_rope_layer_interval": 2, "pad_token_id": 0}),
    ("mamba2", "one group", MAMBA),
    ("mamba2", "biases, tied", {**MAMBA, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True}),
    ("lfm2", "plain", {**LFM, "block_auto_adjust_ff_dim": False}),
    ("lfm2", "biases, an adjusted MLP", {**LFM, "conv_bias": True, "conv_L_cache": 4, "block_multiple_of": 8}),
    ("qwen3_next", "experts", {**DELTA, **DELTA_EXPERTS}),
    ("qwen3_next", "as they are, dense layers between", {**DELTA, **DELTA_EXPERTS, "norm_topk_prob": False, "decoder_sparse_step": 2}),
    ("qwen3_next", "keys wider than values", {**DELTA, **DELTA_EXPERTS, **WIDE_KEYS}),
    ("qwen3_next", "values wider than keys", {**DELTA, **DELTA_EXPERTS, **WIDE_VALUES}),
    ("qwen3_5_text", "dense", DELTA),
    ("qwen3_5_text", "keys wider than values", {**DELTA, **WIDE_KEYS}),
    ("qwen3_5_text", "values wider than keys", {**DELTA, **WIDE_VALUES}),
    ("qwen3_5_text", "tied, every second layer attends", {**DELTA, "tie_word_embeddings": True, "layer_types": ["linear_attention", "full_attention"] * 2}),
    ("qwen3_5_moe_text", "experts", {**DELTA, **DELTA_EXPERTS}),
    ("gpt2", "plain", {"vocab_size": 67, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128}),
]
