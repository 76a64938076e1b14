"""Which parameters a rule for matrices (Muon and its kin) steps as matrices, and which go to the rest's rule.

Muon's authors: hidden matrices go to Muon; embeddings, the first convolution, heads and vectors go to AdamW. Structure
decides which those are: kinds of modules, order, shapes, ties and repeated blocks. Names decide where there is no
module to look at, for parameters that belong to no layer of torch's, and for heads outside of blocks."""
import re
import warnings

import torch

from .._lib import USE_STEP

EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
CONVOLUTIONS = torch.nn.modules.conv._ConvNd
# Last parts of names. Of embeddings: wte, embed_tokens, word_embeddings, pos_embed, cls_token, T5's shared.
EMBEDS = re.compile(r"(^|_)(emb|embs|embed|embeds|embedding|embeddings|embedder)(_|$)|^(wte|wpe|shared|latents?)$|"
                    r"_tokens?$|^relative_(attention_bias|position_bias|position_bias_table)$", re.I)
# Of heads, outside of repeated blocks: blocks have layers called output, too.
HEADS = re.compile(r"(^|_)(head|classifier|score|scores|logits|unembed|unembedding|output|output_projection|fc_out|"
                   r"embed_out|qa_outputs)$", re.I)
# What wrappers (DDP, FSDP, compile, PEFT) put into paths.
AROUND = re.compile(r"^(_\w+|module|modules_to_save|original_module|base_layer|default)$")


class Layer:
    """A parameter of two and more dimensions in its place in a model."""

    def __init__(self, name, p, owner):
        *path, last = [x for x in name.split(".") if not AROUND.match(x)] or [name]
        self.p, self.path, self.last = p, path, last
        known = isinstance(owner, (torch.nn.Linear, CONVOLUTIONS, *EMBEDDINGS))
        while path and path[-1].isdigit() and last == "weight":        # lm_heads.0.weight
            path = path[:-1]
        self.name = path[-1] if last == "weight" and path else last
        self.embeds = isinstance(owner, EMBEDDINGS) or not known and bool(EMBEDS.search(self.name))
        self.convolves = isinstance(owner, CONVOLUTIONS) if owner is not None else p.dim() > 2 and last == "weight"
        self.out, self.into = p.shape[:2]
        if hasattr(owner, "nf") or isinstance(owner, torch.nn.modules.conv._ConvTransposeNd):
            self.into, self.out = self.out, self.into                  # transformers' Conv1D is the other way round
        self.block = False


def mark_blocks(layers):
    """Marks layers in repeated blocks, as h.0.attn.c_proj and h.1.attn.c_proj: blocks of a list that have half of their
    names and shapes in common (T5's first has a table more). A list of one block is one too, where there is something
    beside it."""
    lists, plain = {}, set()
    for layer in layers:
        for i, part in enumerate(layer.path):
            if part.isdigit() and i == len(layer.path) - 1:
                plain.add(tuple(layer.path[:i]))       # a list of layers: fc.0, fc.2
            elif part.isdigit():
                blocks = lists.setdefault(tuple(layer.path[:i]), {})
                blocks.setdefault(part, {})[(*layer.path[i + 1:], layer.last), tuple(layer.p.shape)] = layer
    for where, blocks in lists.items():
        found = list(blocks.values())
        alone = list(blocks) == ["0"] and where not in plain and len(found[0]) < len(layers)
        for block in found:
            alike = (2 * len(block.keys() & x.keys()) >= max(len(block), len(x)) for x in found if x is not block)
            if alone or any(alike):
                for layer in block.values():
                    layer.block = True


def ends(layers):
    """Numbers of layers that embed, that see the input first, or that make what a model gives."""
    mark_blocks(layers)
    found = {i for i, x in enumerate(layers) if x.embeds}
    words = {tuple(x.p.shape) for x in layers if x.embeds and not x.block}
    first = next((i for i, x in enumerate(layers) if x.convolves and (i == 0 or not x.block)), None)
    if first is not None and all(layers[k].embeds for k in range(first)):
        found.add(first)
    for i, x in enumerate(layers):
        if not x.block and not x.convolves and (tuple(x.p.shape) in words and x.out != x.into or HEADS.search(x.name)):
            found.add(i)                               # to the vocabulary, or called a head
    for i in reversed(range(len(layers))):             # the last layers: nothing takes what they give
        x = layers[i]
        if i in found:
            continue
        if x.block or any(y.into == x.out for y in layers[i + 1:]) or x.out == x.into:
            break
        found.add(i)
    return found


def is_vector(p):
    """Also a matrix of one row or one column."""
    return p.dim() < 2 or p.numel() <= max(p.shape)


def by_module(module):
    """Addresses of parameters that embed or score, tied ones too."""
    owners = dict(module.named_modules(remove_duplicate=False))
    layers = [Layer(name, p, owners[name.rpartition(".")[0]])
              for name, p in module.named_parameters(remove_duplicate=False) if p.dim() > 1]
    return {id(layers[i].p) for i in ends(layers)}


def by_name(named):
    """The same where there are names alone. Matrices alone are somebody's choice: then names decide, not the order."""
    layers = [Layer(name, p, None) for name, p in named if name is not None and p.dim() > 1]
    if len(layers) < len(named):
        return {id(layers[i].p) for i in ends(layers)}
    mark_blocks(layers)
    return {id(x.p) for x in layers if x.embeds or not x.block and HEADS.search(x.name)}


def sorter(named, module, sort, spec, rest):
    """{id of a parameter: flags}. `sort`: a function of (name, parameter) that says whether it is stepped as a matrix
    (True), by the rest's rule (False), or as it would be (None)."""
    at_ends = by_module(module) if module is not None else by_name(named)
    if module is None and not sort and any(name is None for name, _ in named) and any(p.dim() > 1 for _, p in named):
        warnings.warn("optc: %s steps every parameter of two and more dimensions as a matrix, embeddings and heads "
                      "too, as it has no names: give it a module or named parameters, or say which by sort=" % spec,
                      stacklevel=4)
    flags, matrices = {}, 0
    for name, p in named:
        said = sort(name, p) if sort else None
        if said is None:
            said = not is_vector(p) and id(p) not in at_ends
        matrices += bool(said) and p.dim() > 1
        if not said and p.dim() > 1 and (rest or sort):
            flags[id(p)] = USE_STEP
    if rest and named and not matrices:
        warn_of_vectors(named, spec, rest)
    return flags


def warn_of_vectors(named, spec, rest):
    """FSDP1 flattens what it shards: Muon would be AdamW, unseen."""
    flat = any(getattr(p, "_is_flat_param", False) or "_fsdp_wrapped_module" in (name or "") for name, p in named)
    why = "all %d are vectors, embeddings or heads; optc.torch.sorted_by tells which, sort= overrides it" % len(named)
    if flat:
        why = "FSDP1 hands it flattened shards of one dimension; shard by torch.distributed.fsdp.fully_shard (FSDP2)"
    warnings.warn("optc: %s steps none of its parameters as a matrix, so this is %s: %s" % (spec, rest, why),
                  stacklevel=5)


def sorted_by(optimizer):
    """{name: "matrix" or "rest"} as an optimizer sorted its parameters."""
    return {name or str(i): "rest" if p.dim() < 2 or optimizer._flags.get(id(p)) else "matrix"
            for i, (name, p) in enumerate(
                (optimizer._named.get(id(p)), p) for g in optimizer.param_groups for p in g["params"])}
