"""Decides which parameters a rule for matrices (Muon and others) steps as matrices, and which the fallback rule steps.

Muon's authors use Muon for hidden matrices, and AdamW for embeddings, the first convolution, heads and vectors. The
structure of the model decides which these are: classes of modules, order, shapes, tied weights and repeated blocks.
Names decide if there is no module, for parameters outside of torch's layers, and for heads outside of blocks."""
import re
import warnings

import torch

from .._lib import USE_STEP

EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
CONVOLUTIONS = torch.nn.modules.conv._ConvNd
# Last parts of the names of embeddings: wte, embed_tokens, word_embeddings, pos_embed, cls_token, T5's shared.
EMBEDS = re.compile(r"(^|_)(emb|embs|embed|embeds|embedding|embeddings|embedder)(_|$)|^(wte|wpe|shared|latents?)$|"
                    r"_tokens?$|^relative_(attention_bias|position_bias|position_bias_table)$", re.I)
# Names of heads outside of repeated blocks: blocks have layers called output, too.
HEADS = re.compile(r"(^|_)(head|classifier|score|scores|logits|unembed|unembedding|output|output_projection|fc_out|"
                   r"embed_out|qa_outputs)$", re.I)
# Path components that wrappers (DDP, FSDP, compile, PEFT) insert.
AROUND = re.compile(r"^(_\w+|module|modules_to_save|original_module|base_layer|default)$")


class Layer:
    """A parameter of two or more dimensions, with its path and its module in the model."""

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
            self.into, self.out = self.out, self.into                  # transformers' Conv1D stores (in, out)
        self.block = False


def mark_blocks(layers):
    """Marks layers in repeated blocks, such as h.0.attn.c_proj and h.1.attn.c_proj. Blocks of a list count as repeated
    if they share half of their names and shapes (T5's first one has an additional table). A list of one block counts
    too, if there are layers outside of it."""
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
    """Numbers of layers that embed, that read the model's input first, or that make its output."""
    mark_blocks(layers)
    found = {i for i, x in enumerate(layers) if x.embeds}
    words = {tuple(x.p.shape) for x in layers if x.embeds and not x.block}
    first = next((i for i, x in enumerate(layers) if x.convolves and (i == 0 or not x.block)), None)
    if first is not None and all(layers[k].embeds for k in range(first)):
        found.add(first)
    for i, x in enumerate(layers):
        if not x.block and not x.convolves and (tuple(x.p.shape) in words and x.out != x.into or HEADS.search(x.name)):
            found.add(i)                               # maps to the vocabulary, or has the name of a head
    for i in reversed(range(len(layers))):             # the last layers: no layer reads their output
        x = layers[i]
        if i in found:
            continue
        if x.block or any(y.into == x.out for y in layers[i + 1:]) or x.out == x.into:
            break
        found.add(i)
    return found


def is_vector(p):
    """Whether a parameter is a vector, or a matrix of one row or one column."""
    return p.dim() < 2 or p.numel() <= max(p.shape)


def by_module(module):
    """Addresses of parameters of embeddings and heads, tied ones too."""
    owners = dict(module.named_modules(remove_duplicate=False))
    layers = [Layer(name, p, owners[name.rpartition(".")[0]])
              for name, p in module.named_parameters(remove_duplicate=False) if p.dim() > 1]
    return {id(layers[i].p) for i in ends(layers)}


def by_name(named):
    """The same with names only. If all parameters are matrices, the user has selected them: then names decide, not the
    order."""
    layers = [Layer(name, p, None) for name, p in named if name is not None and p.dim() > 1]
    if len(layers) < len(named):
        return {id(layers[i].p) for i in ends(layers)}
    mark_blocks(layers)
    return {id(x.p) for x in layers if x.embeds or not x.block and HEADS.search(x.name)}


def sorter(named, module, sort, spec, rest):
    """{id of a parameter: flags}. sort: a function of (name, parameter) that returns True: step it as a matrix, False:
    by the fallback rule, None: by default."""
    at_ends = by_module(module) if module is not None else by_name(named)
    if module is None and not sort and any(name is None for name, _ in named) and any(p.dim() > 1 for _, p in named):
        warnings.warn("optc: %s steps every parameter of two and more dimensions as a matrix, embeddings and heads "
                      "too, because they have no names: pass a module or named parameters, or select them by sort="
                      % spec, stacklevel=4)
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
    """Warns if no parameter is a matrix: FSDP1 flattens parameters, and Muon would silently be AdamW."""
    flat = any(getattr(p, "_is_flat_param", False) or "_fsdp_wrapped_module" in (name or "") for name, p in named)
    why = "all %d are vectors, embeddings or heads; optc.torch.sorted_by tells which, sort= overrides it" % len(named)
    if flat:
        why = "FSDP1 hands it flattened shards of one dimension; shard by torch.distributed.fsdp.fully_shard (FSDP2)"
    warnings.warn("optc: %s steps none of its parameters as a matrix, so this is %s: %s" % (spec, rest, why),
                  stacklevel=5)


def sorted_by(optimizer):
    """{name: "matrix" or "rest"}: how an optimizer steps its parameters ("rest": by the fallback rule)."""
    return {name or str(i): "rest" if p.dim() < 2 or optimizer._flags.get(id(p)) else "matrix"
            for i, (name, p) in enumerate(
                (optimizer._named.get(id(p)), p) for g in optimizer.param_groups for p in g["params"])}
