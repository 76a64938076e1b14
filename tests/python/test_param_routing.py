"""Which parameters Muon steps as matrices, for common models. Those that are no hidden matrices are
listed by hand."""
import json
import os
import unittest
import warnings

import torch
from torch import nn

import optc.torch
from case import Case

HERE = os.path.dirname(os.path.abspath(__file__))
# Parameters of two and more dimensions that go to AdamW: embeddings, the first convolution, heads.
# All others of two and more dimensions are hidden matrices. A tied head has the name of its
# embedding.
REST = {
    "gpt2": ["transformer.wte.weight", "transformer.wpe.weight"], "gpt2-medium": [
        "transformer.wte.weight", "transformer.wpe.weight"
    ], "gpt2-one-block": ["transformer.wte.weight", "transformer.wpe.weight"], "gpt-neo-1.3B": [
        "transformer.wte.weight", "transformer.wpe.weight"
    ], "opt-125m": ["model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"],
    "opt-350m": ["model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"],
    "llama-7b": ["model.embed_tokens.weight",
                 "lm_head.weight"], "llama-classes": ["model.embed_tokens.weight", "score.weight"],
    "mixtral-8x7b": ["model.embed_tokens.weight", "lm_head.weight"], "bert-base": [
        "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight"
    ], "bert-512": [
        "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight"
    ], "bert-classes": [
        "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight", "classifier.weight"
    ], "bert-pretraining": [
        "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight", "cls.seq_relationship.weight"
    ], "bert-without-head": [
        "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight",
        "embeddings.token_type_embeddings.weight"
    ], "t5-small": [
        "shared.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    ], "t5-v1.1-small": [
        "shared.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "lm_head.weight"
    ], "vit-base": [
        "vit.embeddings.cls_token", "vit.embeddings.position_embeddings",
        "vit.embeddings.patch_embeddings.projection.weight", "classifier.weight"
    ], "vit-without-head": [
        "embeddings.cls_token", "embeddings.position_embeddings",
        "embeddings.patch_embeddings.projection.weight"
    ], "nanogpt-medium": ["transformer.wte.weight", "transformer.wpe.weight"],
}


def built(rows):
    """The model of a row of models.json, with no memory behind its parameters."""
    made, modules = {}, {}
    for path, name, kind, own in rows:
        m = modules[path] = bare(getattr(nn, kind, nn.Module), name)
        for n, (number, shape) in own.items():
            if number not in made:
                made[number] = nn.Parameter(torch.empty(shape, device="meta"))
            m.register_parameter(n, made[number])
        if name == "Conv1D":
            m.nf = own["weight"][1][1]
        if kind == "Embedding":
            m.num_embeddings, m.embedding_dim = own["weight"][1]
        if kind == "Linear":
            m.out_features, m.in_features = own["weight"][1]
        parts = path.split(".") if path else []
        for i in range(len(parts)):
            inner, outer = ".".join(parts[:i + 1]), modules[".".join(parts[:i])]
            if parts[i] not in outer._modules:
                outer.add_module(parts[i], modules.setdefault(inner, bare(nn.Module, "Module")))
    return modules[""]


def bare(kind, name):
    """A module of a kind without what its constructor makes."""
    m = kind.__new__(type(name, (kind,), {}))
    nn.Module.__init__(m)
    return m


def rest_of(given, **more):
    """Names that are not stepped as matrices, of two and more dimensions."""
    opt = optc.torch.Muon(given, **more)
    dims = {n: p.dim() for g in opt.param_groups for n, p in zip(g["param_names"], g["params"])}
    return sorted(n for n, x in optc.torch.sorted_by(opt).items() if x == "rest" and dims[n] > 1)


class Models(Case):
    def test_models(self):
        with open(os.path.join(HERE, "models.json")) as f:
            models = json.load(f)
        self.assertEqual(set(models), set(REST))
        for name, rows in models.items():
            m = built(rows)
            self.assertEqual(rest_of(m), sorted(REST[name]), name)
            self.assertEqual(rest_of(list(m.named_parameters())), sorted(REST[name]),
                             name + " by names")
            wrapped = nn.Module()
            wrapped.module = m                         # as DistributedDataParallel has it
            self.assertEqual(rest_of(wrapped), sorted("module." + n for n in REST[name]),
                             name + " wrapped")

    def test_own(self):
        """Models written with torch alone."""
        def mlp(*sizes):
            return nn.Sequential(
                *(x for a, b in zip(sizes, sizes[1:]) for x in (nn.Linear(a, b), nn.ReLU())))
        self.assertEqual(rest_of(mlp(8, 16, 16, 4)), ["4.weight"])
        self.assertEqual(rest_of(nn.Sequential(mlp(8, 16), mlp(16, 4))), ["1.0.weight"])
        lenet = nn.Sequential(nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5), nn.Flatten(),
                              mlp(400, 120, 84, 10))
        self.assertEqual(rest_of(lenet), ["0.weight", "3.4.weight"])
        self.assertEqual(rest_of(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)),
                         [])
        net = nn.Module()                              # a ResNet's names
        net.conv1 = nn.Conv2d(3, 8, 7)
        for k in (1, 2):
            block = nn.Module()
            block.conv1, block.conv2 = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)
            block.downsample = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
            net.add_module("layer%d" % k, nn.Sequential(block))
        net.fc = nn.Linear(8, 10)
        self.assertEqual(rest_of(net), ["conv1.weight", "fc.weight"])
        vit = nn.Module()                              # timm's names
        vit.cls_token, vit.pos_embed = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(
            torch.zeros(1, 17, 8))
        vit.patch_embed = nn.Module()
        vit.patch_embed.proj = nn.Conv2d(3, 8, 4, 4)
        vit.blocks = nn.Sequential(
            *(nn.ModuleDict({"qkv": nn.Linear(8, 24), "proj": nn.Linear(8, 8)}) for _ in "ab"))
        vit.norm, vit.head = nn.LayerNorm(8), nn.Linear(8, 5)
        self.assertEqual(rest_of(vit),
                         ["cls_token", "head.weight", "patch_embed.proj.weight", "pos_embed"])
        inline = nn.ModuleDict({
            "emb": nn.Embedding(9, 8), "qkv": nn.Linear(8, 24), "proj": nn.Linear(8, 8),
            "output": nn.Linear(8, 9)
        })
        self.assertEqual(rest_of(inline), ["emb.weight", "output.weight"])
        gate = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(1, 8), nn.Linear(8, 8))
        # one row, one column: vectors
        self.assertEqual(rest_of(gate), ["1.weight", "2.weight"])
        heads = nn.ModuleDict(
            {"body": nn.Linear(8, 8), "lm_head": nn.ModuleList([nn.Linear(8, 8),
                                                                nn.Linear(8, 8)])})
        self.assertEqual(rest_of(heads), ["lm_head.0.weight", "lm_head.1.weight"])

    def test_adapters(self):
        """LoRA as PEFT has it: hidden matrices of rank r; a head that is trained beside is a
        head."""
        a, b = (nn.ModuleDict({"default": nn.Linear(*x, bias=False)}) for x in ((8, 2), (2, 8)))
        q = nn.ModuleDict({"base_layer": nn.Linear(8, 8), "lora_A": a, "lora_B": b})
        saved = nn.ModuleDict({"default": nn.Linear(8, 11, bias=False)})
        net = nn.ModuleDict({
            "embed": nn.Embedding(11, 8), "layers": nn.ModuleList([nn.ModuleDict({"q": q})]),
            "lm_head": nn.ModuleDict({"modules_to_save": saved})
        })
        q["base_layer"].requires_grad_(False)
        self.assertEqual(rest_of(net), ["embed.weight", "lm_head.modules_to_save.default.weight"])

    def test_one_block(self):
        """A stage of a pipeline that is one block: its last layer is no head, whatever its number.
        That of an autoencoder, and of a network inside of a list, is one."""
        def block(*layers, norm=nn.LayerNorm):
            m = nn.Module()
            m.norm = norm(8)
            for name, n in layers:
                parent = m
                *path, last = name.split(".")
                for part in path:
                    if not hasattr(parent, part):
                        parent.add_module(part, nn.Module())
                    parent = getattr(parent, part)
                parent.add_module(last, nn.Linear(*n, bias=False))
            return m
        attention = [("attn." + x, (8, 8)) for x in "qkvo"]
        blocks = {
            "gpt": block(("attn.qkv", (8, 24)), ("attn.proj", (8, 8)), ("mlp.fc", (8, 32)),
                         ("mlp.proj", (32, 8))),
            "llama": block(*attention, ("mlp.gate", (8, 20)), ("mlp.up", (8, 20)),
                           ("mlp.down", (20, 8))),
            "plain": block(*attention, ("fc1", (8, 32)), ("fc2", (32, 8))),
            "output": block(("attention.key", (8, 4)), ("attention.output", (4, 8)),
                            ("mlp.up", (8, 20)), ("mlp.down", (20, 8))),
            "one reader": block(("mixer.into", (8, 20)), ("mixer.out", (20, 8))),
            "torch": nn.TransformerEncoderLayer(8, 2, 16),
        }
        for name, b in blocks.items():
            for number in (None, 0, 3):
                stage = b if number is None else nn.ModuleDict(
                    {"layers": nn.ModuleDict({str(number): b})})
                self.assertEqual(rest_of(stage), [], (name, number))
                self.assertEqual(rest_of(list(stage.named_parameters())), [], (name, number))
        last = nn.ModuleDict({"layers": nn.ModuleDict({"3": blocks["gpt"]}),
                              "norm": nn.LayerNorm(8), "lm_head": nn.Linear(8, 11)})
        self.assertEqual(rest_of(last), ["lm_head.weight"])
        coder = nn.ModuleDict({"encoder": nn.Linear(8, 3), "norm": nn.LayerNorm(3),
                               "decoder": nn.Linear(3, 8)})
        self.assertEqual(rest_of(coder), ["decoder.weight"])
        inner = nn.Sequential(nn.Flatten(), block(("fc1", (8, 16)), ("fc2", (16, 4))))
        self.assertEqual(rest_of(inner), ["1.fc2.weight"])
        deep = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8))
        self.assertEqual(rest_of(deep), ["2.weight"])

    def test_create(self):
        """create() lets the module decide, as the classes do: the names tell no tied head, and no
        kernel that may be split."""
        net = nn.ModuleDict({"wte": nn.Embedding(11, 8), "conv": nn.Conv1d(8, 6, 3),
                             "body": nn.Linear(8, 8), "out": nn.Linear(8, 11)})
        net["out"].weight = net["wte"].weight
        opt = optc.torch.create("scion", net, split={"conv.weight": 2}, sort=lambda *_: None)
        self.assertEqual(optc.torch.sorted_by(opt)["wte.weight"], "head")
        net["body"].weight.requires_grad_(False)
        for given in ({}, {"adamw_weight_decay": 0, "weight_decay": 0}):
            found = optc.torch.sorted_by(optc.torch.create("muon", net, **given))
            want = optc.torch.sorted_by(optc.torch.Muon(net))
            self.assertEqual(found, {n: want[n] for n in want if n != "body.weight"})

    def test_chosen(self):
        """A list of matrices is somebody's choice: its last one is not taken for a head."""
        net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(4, 2))
        chosen = [(n, p) for n, p in net.named_parameters() if p.dim() > 1][:2]
        self.assertEqual(rest_of(chosen), [])

    def test_warnings(self):
        def warned(given):
            with warnings.catch_warnings(record=True) as all:
                warnings.simplefilter("always")
                optc.torch.Muon(given)
            return [str(w.message) for w in all]

        vectors = [("a", torch.zeros(3, requires_grad=True)),
                   ("b", torch.zeros(4, requires_grad=True))]
        self.assertRegex(warned(vectors)[0], "steps none of its parameters as a matrix, so this is "
                                             "adamw: all 2 are")
        self.assertEqual(len(warned([p for _, p in vectors])), 1)
        flat = nn.Parameter(torch.zeros(9))
        flat._is_flat_param = True                     # as FSDP1 marks its FlatParameter
        self.assertRegex(warned([flat])[0], r"FSDP1 hands it flattened shards.*fully_shard")
        # use_orig_params=True
        shard = [("_fsdp_wrapped_module.0.weight", nn.Parameter(torch.zeros(8)))]
        self.assertRegex(warned(shard)[0], "FSDP1")
        self.assertEqual(warned(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))), [])
        self.assertEqual(warned([("fc.weight", torch.zeros(3, 3, requires_grad=True))]), [])


if __name__ == "__main__":
    unittest.main()
