"""Writes models.json: names, kinds of modules, shapes and ties of common models, two blocks of
each. Needs transformers; test_param_routing.py, which reads the file, does not.

    python tests/python/make_models.py > tests/python/models.json
"""
import json

import torch
import transformers as t


class NanoGPT(torch.nn.Module):
    """The names and shapes of karpathy/nanoGPT's GPT, of its medium size."""
    def __init__(self, d, words, positions, layers):
        super().__init__()
        nn = torch.nn

        def block():
            attn = nn.ModuleDict({"c_attn": nn.Linear(d, 3 * d), "c_proj": nn.Linear(d, d)})
            mlp = nn.ModuleDict({"c_fc": nn.Linear(d, 4 * d), "c_proj": nn.Linear(4 * d, d)})
            return nn.ModuleDict(
                {"ln_1": nn.LayerNorm(d), "attn": attn, "ln_2": nn.LayerNorm(d), "mlp": mlp})
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(words, d), "wpe": nn.Embedding(positions, d),
            "h": nn.ModuleList(block() for _ in range(layers)), "ln_f": nn.LayerNorm(d)})
        self.lm_head = nn.Linear(d, words, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight


def gpt2(**more):
    return t.GPT2LMHeadModel(t.GPT2Config(**{"n_layer": 2, **more}))


def bert(kind, **more):
    return kind(t.BertConfig(num_hidden_layers=2, **more))


def opt(**more):
    return t.OPTForCausalLM(t.OPTConfig(num_hidden_layers=2, **more))


def llama(kind, **more):
    return kind(t.LlamaConfig(num_hidden_layers=2, **more))


def untied(model):
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    model.tie_weights = lambda: None
    model.encoder.embed_tokens.weight = model.decoder.embed_tokens.weight = model.shared.weight
    return model


MODELS = {
    "gpt2": lambda: gpt2(), "gpt2-medium": lambda: gpt2(n_embd=1024, n_head=16),
    "gpt2-one-block": lambda: gpt2(n_layer=1), "gpt-neo-1.3B": lambda: t.GPTNeoForCausalLM(
        t.GPTNeoConfig(hidden_size=2048, num_heads=16, num_layers=2, attention_types=
                       [[["global", "local"], 1]])), "opt-125m": lambda: opt(),
    "opt-350m": lambda: opt(hidden_size=1024, num_attention_heads=16, ffn_dim=4096,
                            word_embed_proj_dim=512), "llama-7b": lambda: llama(t.LlamaForCausalLM),
    "llama-classes": lambda: llama(t.LlamaForSequenceClassification),
    "mixtral-8x7b": lambda: t.MixtralForCausalLM(t.MixtralConfig(num_hidden_layers=2)),
    "bert-base": lambda: bert(t.BertForMaskedLM), "bert-512": lambda: bert(
        t.BertForMaskedLM, hidden_size=512, num_attention_heads=8, intermediate_size=2048),
    "bert-classes": lambda: bert(t.BertForSequenceClassification),
    "bert-pretraining": lambda: bert(t.BertForPreTraining),
    "bert-without-head": lambda: bert(t.BertModel),
    "t5-small": lambda: t.T5ForConditionalGeneration(t.T5Config(num_layers=2)),
    "t5-v1.1-small": lambda: untied(
        t.T5ForConditionalGeneration(
            t.T5Config(num_layers=2, num_heads=6, d_ff=1024, feed_forward_proj="gated-gelu"))),
    "vit-base": lambda: t.ViTForImageClassification(t.ViTConfig(num_hidden_layers=2)),
    "vit-without-head": lambda: t.ViTModel(t.ViTConfig(num_hidden_layers=2)),
    "nanogpt-medium": lambda: NanoGPT(1024, 50304, 1024, 2),
}
KINDS = (torch.nn.Embedding, torch.nn.Linear, torch.nn.Conv2d, torch.nn.LayerNorm)


def described(model):
    """[module, its class, the class of torch's that it is, {parameter: (number, shape)}]; tied ones
    have one number."""
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    numbers, rows = {}, []
    for path, m in model.named_modules(remove_duplicate=False):
        own = {
            n: (numbers.setdefault(id(p), len(numbers)), list(p.shape))
            for n, p in m._parameters.items() if p is not None
        }
        kind = next((k.__name__ for k in KINDS if isinstance(m, k)), "")
        rows.append([path, type(m).__name__, kind, own])
    return rows


if __name__ == "__main__":
    with torch.device("meta"):
        found = {name: described(make()) for name, make in MODELS.items()}
    lines = ['"%s": [\n%s\n]' % (name, ",\n".join(json.dumps(r) for r in rows if r[3] or not r[0]))
             for name, rows in found.items()]
    print("{\n%s\n}" % ",\n".join(lines))
