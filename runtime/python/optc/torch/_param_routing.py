"""Decides which parameters a rule for matrices (Muon and others) steps as matrices, and which the
fallback rule steps.

Muon's authors use Muon for hidden matrices, and AdamW for embeddings, the first convolution, heads
and vectors. The structure of the model decides which these are: classes of modules, order, shapes,
tied weights and repeated blocks. Names decide if there is no module, for parameters outside of
torch's layers, and for heads outside of blocks."""
import re
import warnings

import torch

from ._group_keys import user_level

EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
CONVOLUTIONS = torch.nn.modules.conv._ConvNd
# Last parts of the names of embeddings: wte, embed_tokens, word_embeddings, pos_embed, cls_token,
# T5's shared.
EMBEDS = re.compile(
    r"(^|_)(emb|embs|embed|embeds|embedding|embeddings|embedder)(_|$)|^(wte|wpe|shared|latents?)$|"
    r"_tokens?$|^relative_(attention_bias|position_bias|position_bias_table)$", re.I)
# Names of heads outside of repeated blocks: blocks have layers called output, too.
HEADS = re.compile(
    r"(^|_)(head|classifier|score|scores|logits|unembed|unembedding|output|output_projection|"
    r"fc_out|embed_out|qa_outputs)$", re.I)
# Modules whose layers are no heads, whatever their names.
INSIDE = re.compile(r"attn|attention", re.I)
NORMS = re.compile(r"norm|(^|[._])ln(_|\d|\.|$)", re.I)
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
        embeds = isinstance(owner, EMBEDDINGS)
        self.heads = bool(HEADS.search(self.name)) and not embeds and not any(
            map(INSIDE.search, path[:-1]))
        self.embeds = embeds or not (known or self.heads) and bool(EMBEDS.search(self.name))
        self.convolves = isinstance(
            owner, CONVOLUTIONS) if owner is not None else p.dim() > 2 and last == "weight"
        self.out, self.into = p.shape[:2]
        if hasattr(owner, "nf") or isinstance(owner, torch.nn.modules.conv._ConvTransposeNd):
            # transformers' Conv1D stores (in, out)
            self.into, self.out = self.out, self.into
        self.block = False


def mark_blocks(layers):
    """Marks layers in repeated blocks, such as h.0.attn.c_proj and h.1.attn.c_proj. Blocks of a
    list count as repeated if they share half of their names and shapes (T5's first one has an
    additional table). A list of one block counts too, if there are layers outside of it."""
    lists, plain = {}, set()
    for layer in layers:
        for i, part in enumerate(layer.path):
            if part.isdigit() and i == len(layer.path) - 1:
                plain.add(tuple(layer.path[:i]))       # a list of layers: fc.0, fc.2
            elif part.isdigit():
                blocks = lists.setdefault(tuple(layer.path[:i]), {})
                blocks.setdefault(part, {})[(*layer.path[i + 1:], layer.last),
                                            tuple(layer.p.shape)] = layer
    for where, blocks in lists.items():
        found = list(blocks.values())
        alone = list(blocks) == ["0"] and where not in plain and len(found[0]) < len(layers)
        for block in found:
            alike = (2 * len(block.keys() & x.keys()) >= max(len(block), len(x)) for x in found
                     if x is not block)
            if alone or any(alike):
                for layer in block.values():
                    layer.block = True


def returns_to_stream(layer, before, norms):
    """Whether a layer's output is added to its block's input, as that of a transformer's block is:
    earlier layers read the same width. A stage of a pipeline may be one such block and nothing
    else. The last layer of an autoencoder has one reader, its first layer. before: the layers
    before it. norms: the widths of norms."""
    readers = sum(x.into == layer.out for x in before)
    listed = len(layer.path) == 1 and layer.path[0].isdigit()          # 0, 2, 4 of a plain list
    return readers > 0 and layer.out in norms and not listed or readers > 1 and len(layer.path) > 1


def ends(layers, norms=()):
    """{number of a layer: its words}: "embed"; "first": it reads the model's input first; "head":
    it makes its output."""
    mark_blocks(layers)
    found = {i: "embed" for i, x in enumerate(layers) if x.embeds}
    shapes = {tuple(x.p.shape) for x in layers if x.embeds and not x.block}
    first = next((i for i, x in enumerate(layers) if x.convolves and (i == 0 or not x.block)), None)
    if first is not None and all(layers[k].embeds for k in range(first)):
        found[first] = "first"
    for i, x in enumerate(layers):                     # to the vocabulary, or with a head's name
        if i not in found and not x.block and not x.convolves and (
                tuple(x.p.shape) in shapes and x.out != x.into or x.heads):
            found[i] = "head"
    # the last layers: no layer reads their output
    for i in reversed(range(len(layers))):
        x = layers[i]
        if i in found:
            continue
        if x.block or any(y.into == x.out for y in layers[i + 1:]) or x.out == x.into or \
                returns_to_stream(x, layers[:i], norms):
            break
        found[i] = "head"
    return found


def is_vector(p):
    """Whether a parameter is a vector, or a matrix of one row or one column."""
    return p.dim() < 2 or p.numel() <= max(p.shape)


def by_module(module):
    """({id of a parameter: words}, ids of kernels of convolutions). A tied parameter may be "embed
    head"."""
    owners = dict(module.named_modules(remove_duplicate=False))
    named = [(name, p, owners[name.rpartition(".")[0]])
             for name, p in module.named_parameters(remove_duplicate=False)]
    layers = [Layer(*x) for x in named if x[1].dim() > 1]
    norms = {p.numel() for _, p, owner in named
             if p.dim() == 1 and NORMS.search(type(owner).__name__)}
    found = {}
    for i, words in sorted(ends(layers, norms).items()):
        before = found.get(id(layers[i].p), "").split()
        if words not in before:
            found[id(layers[i].p)] = " ".join([*before, words])
    return found, {id(p) for _, p, owner in named if isinstance(owner, CONVOLUTIONS)}


def by_name(named):
    """{id of a parameter: words} with names only. If all parameters are matrices, the user has
    selected them: then names decide, not the order."""
    layers = [Layer(name, p, None) for name, p in named if name is not None and p.dim() > 1]
    if len(layers) < len(named):
        norms = {p.numel() for name, p in named if p.dim() == 1 and NORMS.search(name or "")}
        return {id(layers[i].p): words for i, words in ends(layers, norms).items()}
    mark_blocks(layers)
    return {id(x.p): "embed" if x.embeds else "head"
            for x in layers if x.embeds or not x.block and x.heads}


class Ends:
    """Embeddings, first convolutions and heads among parameters: [(name, parameter)]."""

    def __init__(self, named, module):
        self.named, self.module, self.found = named, module, None

    def _find(self):
        if self.found is None:
            self.found, self.kernels = by_module(self.module) if self.module is not None else (
                by_name(self.named), set())
        return self.found

    def words(self, p):
        """A tensor of one row or column, or of three dimensions, is no table of embeddings."""
        words = self._find().get(id(p), "matrix") if p.dim() > 1 else "vector"
        words = "first" if words == "embed" and p.dim() > 2 else words
        return "vector" if is_vector(p) and "head" not in words.split() else words

    def is_kernel(self, p):
        return self.module is not None and id(p) in (self._find() is not None and self.kernels)


def called(name, p):
    """A parameter in messages."""
    return "'%s'" % name if name else "a parameter of shape %s" % (tuple(p.shape),)


class Answers:
    """What `sort` answers for the parameters of a group: its own key, or the user's function."""
    SYNONYMS = {True: "matrix", False: "rest", "embedding": "embed"}

    def __init__(self, rule, group, k):
        self.rule, self.group, self.k, self.said = rule, group, k, group.get("sort")

    def matter(self):
        """Whether the rule treats embeddings or heads otherwise than matrices."""
        return bool(self.rule.rest or self.rule.asks_for(self.group, self.k))

    def of_group(self):
        return self._words(self.said, 'param_groups[%d]["sort"] is %r' % (self.k, self.said))

    def of_function(self, said, name, p):
        return self._words(said, "sort= answers %r for %s" % (said, called(name, p)))

    def _words(self, said, what):
        """The words of an answer; None: the default is wanted."""
        if said is None:
            return None
        if isinstance(said, torch.Tensor) or type(said).__module__ == "numpy":
            said = said.item()
        said = self.SYNONYMS.get(said, said) if isinstance(said, (str, int)) else said
        asks = self.rule.asks_for(self.group, self.k)
        tags = sorted({"head", "embed", *asks})
        words = said.replace(",", " ").split() if isinstance(said, str) else ()
        if len(words) == 1 and words[0] in ("matrix", "rest") or words and set(words) <= set(tags):
            return " ".join(words)
        raise ValueError('%s: it must be "matrix" or True, "rest" or False, %s, or None (by '
                         'default)' % (what, ", ".join('"%s"' % x for x in tags)))


def warn_of_unnamed(rows, spec, alike):
    """Warns if embeddings and heads cannot be found. rows: [(parameter, its role)] without an
    answer of `sort`. alike: how the rule steps them then."""
    if any(role.name is None for _, role in rows) and any(p.dim() > 1 for p, _ in rows):
        warnings.warn("optc: %s steps every parameter of two and more dimensions %s, embeddings "
                      "and heads too, because they have no names: pass a module or named "
                      "parameters, or select them by sort=" % (spec, alike),
                      stacklevel=user_level())


def warn_of_vectors(rows, spec, rest):
    """Warns if no parameter is a matrix: FSDP1 flattens parameters, and Muon would silently be
    AdamW."""
    flat = any(getattr(p, "_is_flat_param", False) or "_fsdp_wrapped_module" in (role.name or "")
               for p, role in rows)
    why = "all %d are vectors, embeddings or heads; optc.torch.sorted_by tells which, sort= " \
          "overrides it" % len(rows)
    if flat:
        why = ("FSDP1 hands it flattened shards of one dimension; shard by "
               "torch.distributed.fsdp.fully_shard (FSDP2)")
    warnings.warn(
        "optc: %s steps none of its parameters as a matrix, so this is %s: %s" % (spec, rest, why),
        stacklevel=user_level())
