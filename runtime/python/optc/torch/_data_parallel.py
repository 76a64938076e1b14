"""Parameters of torch's older data parallelism: ZeroRedundancyOptimizer, whose ranks have some of
the parameters each, and FSDP1, whose parameters are flat shards of several tensors."""
import re
import sys

from .. import library_text
from ._collective import steps_pieces_of_vectors
from ._engines import asked
from ._group_keys import split_wrappers
from ._param_roles import names_of
from ._tensor_checks import tensor_name

ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def zeros_group():
    """The process group of the ZeroRedundancyOptimizer whose constructor is calling, or None."""
    kind = getattr(sys.modules.get(ZERO), "ZeroRedundancyOptimizer", None)
    frame = sys._getframe(1) if kind else None
    while frame is not None:
        zero = frame.f_locals.get("self")
        if isinstance(zero, kind):
            return zero.process_group
        frame = frame.f_back
    return None


def _is_flat(p):
    """Whether FSDP1 has made p a shard of a flat parameter. With use_orig_params the module's own
    parameters are pieces of such a shard."""
    return bool(getattr(p, "_is_flat_param", False) or getattr(p, "_fsdp_flattened", False))


def _is_global_only(plan):
    """Whether sums of single tensors, rows or columns are used for sums over all tensors alone.
    Stages of other kinds than group and map then write nothing, and no stage reads what they
    finish."""
    def names(word, text):
        return set(" ".join(re.findall(r"(?m)^ +%s +(.*)$" % word, text)).split())
    stages = [s for s in re.split(r"(?m)^ +\d+ (?=[a-z])", plan)[1:]]
    inner = [s for s in stages if s.split()[0] not in ("group", "map")]
    finished = set().union(*(names("finishes", s) for s in inner))
    return not any(names("writes", s) for s in inner) and not finished & names("reads", plan)


def _reads_sizes(what):
    """Whether a text of the rule has sizes of tensors: those of flat shards are others."""
    text = what["text"] or library_text(what["spec"])
    if text is None:
        with open(what["spec"], encoding="utf-8") as file:
            text = file.read()
    return any(re.search(r"\bn(umel|kernel)\b", x.replace("global.sum(numel)", ""))
               for x in (text, *what["wrappers"].values()))


def _splits(what):
    """Whether a rule has only values of elements and sums over all tensors: by its plan, or because
    it steps pieces without those of its wrappers that have such sums. what: arguments of
    Engine.compile."""
    if _is_global_only(asked(**what).plan):
        return True

    def around_sgd(wrappers):
        return {**what, "spec": "sgd", "text": None, "options": None, "with_": ",".join(wrappers)}
    wrappers = [w for w in split_wrappers(what["with_"], ",") if w]
    sums = [w for w in wrappers if not steps_pieces_of_vectors(around_sgd([w]))]
    names = {w.split("(")[0].strip() for w in sums}
    options = [x for x in (what["options"] or "").split(",") if x.split(".")[0] not in names]
    rest = {**what, "with_": ",".join(w for w in wrappers if w not in sums),
            "options": ",".join(options) or None}
    return steps_pieces_of_vectors(rest) and _is_global_only(asked(**around_sgd(sums)).plan)


def refuse_flat(opt):
    """Refuses rules whose values over tensors would be those of flat shards. Sums over all tensors
    are right with group=, the processes that have the other shards."""
    params = [(p, k, i) for k, g in enumerate(opt.param_groups) for i, p in enumerate(g["params"])
              if _is_flat(p)]
    # NO_SHARD with use_orig_params
    if not params or any(p.dim() > 1 for p, _, _ in params):
        return
    for k in {k for _, k, _ in params}:
        what = opt._rule.compiled(*opt._rule.rule(opt.param_groups[k], k))
        sizes = _reads_sizes(what)
        if not sizes and steps_pieces_of_vectors(what):
            continue
        p, _, i = next(x for x in params if x[1] == k)
        flat = tensor_name(p, names_of(opt.param_groups[k])[i] or "param_groups[%d][%d]" % (k, i))
        rule = "+".join(x for x in (opt._rule.spec, opt._rule.what["with_"].replace(",", "+")) if x)
        if sizes or not _splits(what):
            raise ValueError("%s has values of whole tensors, rows or columns, and %s is a flat "
                             "shard of FSDP1, which has pieces of several tensors: shard by "
                             "torch.distributed.fsdp.fully_shard (FSDP2), or choose an elementwise "
                             "rule" % (rule, flat))
        if opt._group is None:
            raise ValueError("%s has values over all tensors, such as clip's norm, and %s is a "
                             "flat shard of FSDP1: pass group=, the process group over which FSDP1 "
                             "shards" % (rule, flat))
