"""The part of rule_refs.py for rules that estimate their own step size: Prodigy, D-Adaptation, DoG
and DoWG."""


def configs(api, shared):
    """shared: the functions of rule_refs.configs that run a package's or an author's class."""
    import dadaptation
    import prodigyopt
    config, run, ADAM = api.config, api.run_torch, api.ADAM
    quiet, betas, both, authors = shared.quiet, shared.betas, shared.both, shared.authors
    optax_run, parted = shared.optax_run, shared.parted
    SCHEDULED, LONG = shared.SCHEDULED, shared.LONG

    # ---- Prodigy ----
    def prodigy(**more):
        return quiet(lambda ps, h: prodigyopt.Prodigy(
            ps, **betas(h), beta3=h.get("beta3"), d0=h.d0, d_coef=h.d_coef, growth_rate=h.get(
                "growth_rate", float("inf")), **more))
    grows = {**ADAM, "lr": 1.0, "d0": 1e-3, "d_coef": 1.5, "pull": 4.0}
    config("prodigy", "prodigy", "prodigyopt.Prodigy", run(prodigy()), **grows)
    config("prodigy_corrected", "prodigy", "prodigyopt.Prodigy",
           run(prodigy(use_bias_correction=True,
                       decouple=False)), options="use_bias_correction=true,decouple=false",
           native=False, **grows, beta3=0.9, growth_rate=1.1)
    config("prodigy_safeguard", "prodigy", "prodigyopt.Prodigy",
           run(prodigy(safeguard_warmup=True)), options="safeguard_warmup=true", **SCHEDULED,
           **grows)

    # ---- D-Adaptation ----
    growing = dict(lr=1.0, weight_decay=0.1, d0=1e-3, pull=4.0)

    def dadapt(cls, **more):
        def make(ps, h):
            given = {
                k: v for k, v in h.items() if k not in ("beta1", "beta2", "beta3", "layer_scale")
            }
            if "beta1" in h:
                given["betas"] = tuple(h[k] for k in ("beta1", "beta2", "beta3") if k in h)
            opt = cls(ps, **given, **more)
            if "layer_scale" in h:
                opt.param_groups[0]["layer_scale"] = h.layer_scale
            return opt
        return quiet(make)
    adam = dict(growing, beta1=0.8, beta2=0.9, eps=1e-3)
    source = "dadaptation.DAdapt"
    config("dadapt_adam", "dadapt_adam", source + "Adam", run(dadapt(dadaptation.DAdaptAdam)),
           **adam)
    config("dadapt_adam_decoupled", "dadapt_adam", source + "Adam", **SCHEDULED, **adam,
           growth_rate=1.1, layer_scale=0.7, options="decouple=true,use_bias_correction=true",
           run=run(dadapt(dadaptation.DAdaptAdam, decouple=True, use_bias_correction=True)))
    both("dadapt_sgd", "dadapt_sgd", source + "SGD", dadapt(dadaptation.DAdaptSGD), **growing,
         momentum=0.7)
    both("dadapt_lion", "dadapt_lion", source + "Lion", dadapt(dadaptation.DAdaptLion), **growing,
         beta1=0.8, beta2=0.9)
    adan = dict(beta1=0.8, beta2=0.7, beta3=0.9, eps=1e-3)
    both("dadapt_adan", "dadapt_adan", source + "Adan", dadapt(dadaptation.DAdaptAdan), **growing,
         **adan)
    config("dadapt_adan_no_prox", "dadapt_adan", source + "Adan",
           run(dadapt(dadaptation.DAdaptAdan, no_prox=True)), **SCHEDULED, **growing, **adan,
           options="no_prox=true", growth_rate=1.1)
    both("dadapt_adagrad", "dadapt_adagrad", source + "AdaGrad", dadapt(dadaptation.DAdaptAdaGrad),
         **growing, momentum=0.7, eps=1e-3)

    # d is one number for all groups. A group differs in what the package lets differ, and joins at
    # step 21 where the package lets it wait: with lr 0. It decays weights of waiting groups if that
    # is decoupled.
    groups = dict(SCHEDULED, shapes=[(), (7,), (9, 5), (5, 9)])
    other = dict(growing, lr=0.5, weight_decay=0.02, d0=1e-2)
    late = dict(groups, frozen=20)
    config("dadapt_adam_groups", "dadapt_adam", source + "Adam",
           run(dadapt(dadaptation.DAdaptAdam)), **late, **{**adam, **other},
           group=(3, dict(weight_decay=0.1, layer_scale=0.6,
                          eps=1e-2)), growth_rate=1.5, layer_scale=0.9)
    config("dadapt_sgd_groups", "dadapt_sgd", source + "SGD", run(dadapt(dadaptation.DAdaptSGD)),
           **late, **other, momentum=0.5, group=(3, dict(lr=0.5)))
    config("dadapt_lion_groups", "dadapt_lion", source + "Lion",
           run(dadapt(dadaptation.DAdaptLion)), **groups, **other, beta1=0.7, beta2=0.8,
           group=(3, dict(weight_decay=0.1)))
    config("dadapt_adagrad_groups", "dadapt_adagrad", source + "AdaGrad",
           run(dadapt(dadaptation.DAdaptAdaGrad)), **groups, **other, momentum=0.5, eps=2e-3,
           group=(3, dict(weight_decay=0.1, eps=1e-2)))
    config("dadapt_adan_groups", "dadapt_adan", source + "Adan",
           run(dadapt(dadaptation.DAdaptAdan)), **groups, **other, **adan,
           group=(3, dict(weight_decay=0.1, eps=1e-2)), growth_rate=1.5)
    config("prodigy_groups", "prodigy", "prodigyopt.Prodigy", run(prodigy(decouple=False)),
           options="decouple=false", **late, **{**grows, "beta1": 0.6, "beta2": 0.7, "lr": 0.5},
           group=(3, dict(weight_decay=0.2, eps=1e-2)))

    for kind, own in (("SGD", dict(momentum=0.3)), ("Lion", dict(beta1=0.6, beta2=0.7)),
                      ("AdaGrad", dict(momentum=0.3, eps=1e-2))):
        name = "dadapt_" + kind.lower()
        config(name + "_other", name, source + kind,
               run(dadapt(getattr(dadaptation, "DAdapt" + kind))), **SCHEDULED, **other, **own)

    # ---- distance over gradients ----
    dog = dict(lr=0.8, reps_rel=0.02, eps=1e-3, weight_decay=0.1, pull=4.0)
    source = "formll/dog 8d45cf5"
    both("dog", "dog", source, authors("dog/src/dog/dog.py", "DoG"), **dog)
    both("dog_layerwise", "dog", source, authors("dog/src/dog/dog.py", "LDoG"),
         options="layerwise=true", **dog)
    config("dog_first", "dog", source, native=False, **dog, init_eta=0.03,
           run=run(authors("dog/src/dog/dog.py", "DoG")))

    def dowg(h):
        import optax
        # the estimates are over all groups, the rates are not
        if api.RUN["group"]:
            scaled = optax.contrib._dog.scale_by_dowg(h.get("init_estim_sq_dist"), h.eps)
            return optax.chain(optax.add_decayed_weights(h.weight_decay), scaled,
                               parted(optax.scale_by_learning_rate, h))
        return optax.contrib.dowg(h.lr, h.get("init_estim_sq_dist"), h.eps, h.weight_decay)

    config("dowg", "dowg", "optax.contrib.dowg", optax_run(dowg), lr=0.8, eps=1e-2,
           weight_decay=0.1, pull=4.0)
    config("dowg_long", "dowg", "optax.contrib.dowg", optax_run(dowg), **LONG, lr=0.4, eps=1e-3,
           weight_decay=0.02, pull=4.0)
    config("dowg_start", "dowg", "optax.contrib.dowg", optax_run(dowg), native=False, lr=0.8,
           eps=1e-2, weight_decay=0.1, init_estim_sq_dist=0.3)
