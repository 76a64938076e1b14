"""Error messages for unknown keys: they suggest the rule's own name for the same thing."""
import difflib

# Names in other packages, and names in specs of the library; the first one that the rule has is
# suggested.
OTHER_NAMES = {
    "learning_rate": ("lr",), "epsilon": ("eps", "eps1"), "wd": ("weight_decay",
                                                                 ), "b1": ("beta1", "momentum"),
    "b2": ("beta2",), "b3": ("beta3",), "beta": ("beta1", "momentum"), "mu": ("momentum",), "betas":
        ("momentum",), "momentum": ("betas",), "beta1": ("momentum",), "shampoo_beta":
            ("beta3", "beta2"), "precondition_frequency": ("interval",), "precondition_freq":
                ("interval",), "update_freq": ("interval",), "update_proj_gap":
                    ("galore.interval", "interval"), "preconditioning_compute_steps": ("interval",),
    "inverse_every": ("interval",), "root_interval": ("interval",), "stats_interval":
        ("interval",
         ), "max_precond_dim": ("limit",), "max_preconditioner_dim": ("limit",), "max_dim":
             ("limit",), "max_size_triangular": ("limit",), "preconditioner_dim": ("limit",),
    "block_size": ("limit",), "trust_coeff": ("trust",), "trust_coefficient": ("trust",), "eta":
        ("trust", "scale"), "tau": ("trust",), "decouple": ("decoupled",), "weight_decouple":
            ("decoupled",), "decoupled_decay": ("decoupled",), "decoupled_weight_decay":
                ("decoupled",), "decoupled_wd": ("decoupled",), "weight_decay_type": ("decoupled",),
    "ns_steps": ("steps",), "num_ns_steps": ("steps",), "rank": ("directions",), "adjust_lr_fn":
        ("scale",), "ns_coefficients": ("coefficients",), "rms_scale": ("scale",), "final_lr":
            ("lr",), "clip_threshold": ("d",), "rho": ("momentum", "alpha"), "alpha":
                ("rho", "beta2"), "ams_bound": ("amsbound", "amsgrad"), "clip_grad_norm":
                    ("clip.max_norm",), "max_grad_norm": ("clip.max_norm",), "max_norm":
                        ("clip.max_norm",), "clip_exp": ("clip_power",), "clip_lambda":
                            ("clip_power",), "decay_rate": ("beta2_decay",), "muon_beta2":
                                ("beta2",), "adjust_lr": ("scale",), "scale_mode": ("scale",),
    "coefficient_type": ("coefficients",), "lr_params": ("lr",), "lr_preconditioner":
        ("precond_lr",), "preconditioner_lr": ("precond_lr",), "betal":
            ("beta",), "preconditioner_max_size": ("limit",), "grad_clip_max_amps": ("clip_rms",),
    "start_preconditioning_step": ("start",), "init_factor": ("first",), "nonstandard_constant":
        ("other_scale",), "hyperball_radius": ("radius",), "hyperball_eps": ("eps",), "reduce_func":
            ("reduce",), "sinkgd_lr_scale": ("lr_scale",), "sinkgd_eps": ("eps",), "lr_nora":
                ("lr",), "lr_adam": ("adamw.lr",), "adam_lr": ("adamw.lr",), "adamw_wd":
                    ("adamw.weight_decay",), "initial_accumulator_value":
                        ("v0",), "normalize_grads": (), "rectify": (), "degenerated_to_sgd": (),
}
OPPOSITES = {"unconstrained": "constrained", "no_prox": "proximal"}
DECAY = ("decouple", "weight_decouple", "decoupled_decay", "decoupled_weight_decay", "decoupled_wd")
CLIP = ("clip_grad_norm", "max_grad_norm", "max_norm")
# Keys of groups by which Muon of its authors and of others, timm's and Dion choose another rule.
SORTS = ("use_muon", "use_fallback", "algorithm")


def timms_wrappers(with_, given, defaults):
    """The wrappers of timm's caution= and corrected_weight_decay=, innermost, before those of the
    user. Takes the two keys out of `given`, unless they are the rule's own. defaults: a function of
    the rule's defaults. timm takes lr as the schedule's largest rate."""
    found, own = [], {}
    for key, wrapper in (("caution", "cautious(apart=true)"), ("corrected_weight_decay",
                                                               "corrected_decay(%r)")):
        own = own or (defaults() if given.get(key) is not None else {})
        if key in own:
            continue
        value = given.pop(key, None)
        if value not in (None, True, False):
            raise TypeError("%s is True or False, not %r" % (key, value))
        if value:
            found.append(wrapper % float(given.get("lr", own["lr"])) if "%" in wrapper else wrapper)
    return found + ([with_] if isinstance(with_, str) else list(with_ or ())) if found else with_


def refuse_sorting(group, rest, where):
    """Refuses other packages' keys for what `sort` is here: torch would keep them, and nothing
    would read them. rest: the rule of what is no matrix."""
    for key in SORTS:
        if key in group:
            raise TypeError(
                'param_groups[%d]["%s"]: a group is sorted by another key here; write '
                '"sort": "matrix", or "sort": "rest" for %s, which has its own rate "%s.lr"'
                % (where, key, rest, rest))


def unknown(spec, keys, known):
    """The error message about keys that `spec` does not have."""
    hints = [h for h in (_hint(spec, k, known) for k in keys) if h]
    return "%s has no hyperparameter or option %s%s; it has %s" % (spec, ", ".join(keys), "".join(
        ": " + h for h in hints[:1]) + "".join(", " + h for h in hints[1:]), ", ".join(known))


def _hint(spec, key, known):
    if key == "betas" and "adamw.beta1" in known:
        return "betas of the tensors that AdamW steps are adamw_betas here"
    if OPPOSITES.get(key) in known:
        return "%s=True is called %s=False here" % (key, OPPOSITES[key])
    for name in OTHER_NAMES.get(key.lower(), ()):
        if name in known:
            return "%s is called %s here" % (key, name)
    if key in DECAY:
        return "how %s applies weight decay is fixed by its spec, give weight_decay= alone" % spec
    if key in CLIP:
        return "%s is the wrapper's, add with_=[\"clip(1.0)\"]" % key
    near = difflib.get_close_matches(key, known, 1, 0.7)
    return "did you mean %s?" % near[0] if near else ""
