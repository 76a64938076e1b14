"""Which parameters a rule for matrices (Muon and its kin) steps as matrices, and which go to the rest's rule."""
import re
import warnings

import torch

from .._lib import USE_STEP

EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
# Names by which models call what turns tokens into vectors and vectors into scores.
ENDS = re.compile(r"(^|[._])(embed\w*|tok_emb\w*|pos_emb\w*|wte|wpe|lm_head|head|heads|classifier|unembed\w*|output|"
                  r"fc_out|score|logits)(\.|$)", re.I)


def by_module(module):
    """Addresses of parameters that embed or score: those of embeddings, tied ones, and of the last linear layer where
    its name or its size says that it scores."""
    ends, sizes, linear = set(), set(), []
    for name, m in module.named_modules():
        if isinstance(m, EMBEDDINGS):
            ends.update(map(id, m.parameters(recurse=False)))
            sizes.add(m.num_embeddings)
        elif isinstance(m, torch.nn.Linear):
            linear.append((name, m))
    for name, m in linear:
        if ENDS.search(name) or m.out_features in sizes:
            ends.update(map(id, m.parameters(recurse=False)))
    return ends


def sorter(named, module, sort, spec, rest):
    """{id of a parameter: flags}. `sort`: a function of (name, parameter) that says whether it is stepped as a matrix
    (True), by the rest's rule (False), or as it would be (None)."""
    ends = by_module(module) if module is not None else set()
    if module is None and not sort and any(name is None for name, _ in named) and any(p.dim() > 1 for _, p in named):
        warnings.warn("optc: %s steps every parameter of two and more dimensions as a matrix, embeddings and heads "
                      "too, as it has no names: give it a module or named parameters, or say which by sort=" % spec,
                      stacklevel=4)
    flags = {}
    for name, p in named:
        said = sort(name, p) if sort else None
        if said is None:
            said = p.dim() > 1 and id(p) not in ends and not (module is None and name and ENDS.search(name))
        if not said and p.dim() > 1 and (rest or sort):
            flags[id(p)] = USE_STEP
    return flags


def sorted_by(optimizer):
    """{name: "matrix" or "rest"} as an optimizer sorted its parameters."""
    return {name or str(i): "rest" if p.dim() < 2 or optimizer._flags.get(id(p)) else "matrix"
            for i, (name, p) in enumerate(
                (optimizer._named.get(id(p)), p) for g in optimizer.param_groups for p in g["params"])}
