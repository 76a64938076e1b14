"""Edits of opt.state act as in torch.optim."""
import copy
import io
import pickle
from collections import defaultdict

import torch
from torch.utils import _pytree

import optc.torch
from case import Case, grads, lists, model, train

AT = {"AdamW": "exp_avg", "SGD": "momentum_buffer"}


def replace(o, p, key, value):
    o.state[p][key] = value


def offload(o, p, key):
    """Moves states away and back, as helpers do that free a GPU between steps."""
    for s in o.state.values():
        for k, v in s.items():
            if isinstance(v, torch.Tensor):
                s[k] = v.to("cpu", copy=True)


def offload_data(o, p, key):
    for s in o.state.values():
        for v in s.values():
            if isinstance(v, torch.Tensor):
                v.data = v.data.clone()


def swapped(o, p, key):
    """Two states of one shape change places, and somebody keeps the tensors that were there."""
    a, b = o.state[p][key], torch.full_like(p, 0.25)
    keep = a.data
    a.data = b
    return keep


# (name, edit(optimizer, parameter, name of its momentum))
EDITS = [
    ("clear", lambda o, p, k: o.state.clear()),
    ("assign", lambda o, p, k: setattr(o, "state", defaultdict(dict))),
    ("assign and keep", lambda o, p, k: setattr(o, "state", defaultdict(dict, o.state)) or o.state),
    ("del", lambda o, p, k: o.state.__delitem__(p)), ("pop", lambda o, p, k: o.state.pop(p)),
    ("popitem", lambda o, p, k: o.state.popitem()),
    ("clear one", lambda o, p, k: o.state[p].clear()),
    ("empty one", lambda o, p, k: o.state.update({p: {}})),
    ("replace", lambda o, p, k: replace(o, p, k, torch.full_like(p, 0.5))),
    ("update", lambda o, p, k: o.state[p].update({k: torch.full_like(p, 0.5)})),
    ("whole entry",
     lambda o, p, k: o.state.update({p: {**o.state[p], k: torch.full_like(p, 0.5)}})),
    ("setdefault", lambda o, p, k: o.state.setdefault(p, {})[k].fill_(0.5)),
    ("in place", lambda o, p, k: o.state[p][k].mul_(0)),
    ("data", lambda o, p, k: setattr(o.state[p][k], "data", torch.full_like(p, 0.5))),
    ("set_", lambda o, p, k: o.state[p][k].set_(torch.full_like(p, 0.5))),
    ("data, old one kept", swapped),
    ("swap_tensors", lambda o, p, k: torch.utils.swap_tensors(o.state[p][k],
                                                              torch.full_like(p, 0.5).detach())),
    ("offload", offload), ("offload data", offload_data),
    ("items", lambda o, p, k: [s[k].add_(1) for _, s in o.state.items()]),
    ("deep copy", lambda o, p, k: setattr(
        o, "state", defaultdict(dict, zip(o.state, copy.deepcopy(list(o.state.values())))))),
    ("tree", lambda o, p, k: setattr(
        o, "state", _pytree.tree_map_only(torch.Tensor, lambda x: x * 0.5
                                          if x.dim() else x, o.state))),
    ("load", lambda o, p, k: o.load_state_dict(copy.deepcopy(o.state_dict()))),
    ("load halved", lambda o, p, k: o.load_state_dict(
        _pytree.tree_map_only(torch.Tensor, lambda x: x
                              if x.dim() == 0 else x / 2, copy.deepcopy(o.state_dict())))),
]
STEPS = [
    ("number", lambda o, p, k: replace(o, p, "step", torch.tensor(7.0))),
    ("fill", lambda o, p, k: o.state[p]["step"].fill_(7)),
    ("fill data", lambda o, p, k: o.state[p]["step"].data.fill_(7)),
    ("add", lambda o, p, k: replace(o, p, "step", o.state[p]["step"].add_(3))),
    ("zero", lambda o, p, k: o.state[p]["step"].zero_()),
    ("data", lambda o, p, k: setattr(o.state[p]["step"], "data", torch.tensor(9.0))),
]


def make(lib, kind, params):
    given = {"lr": 0.1, "momentum": 0.9, "dampening": 0.3} if kind == "SGD" else {"lr": 0.1}
    return getattr(lib, kind)(params, **given)


class Edits(Case):
    def same(self, a, oa, b, ob, key, what):
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=what)
            torch.testing.assert_close(oa.state[p][key], ob.state[q][key], rtol=1e-5, atol=1e-6,
                                       msg=what)
            if "step" in oa.state[p]:
                self.assertEqual(oa.state[p]["step"].item(), ob.state[q]["step"].item(), what)
        sa, sb = oa.state_dict()["state"], ob.state_dict()["state"]
        self.assertEqual(list(sa), list(sb), what)
        self.assertEqual({type(x) for x in (sb, *sb.values())}, {dict})
        self.assertEqual({type(x) for s in sb.values() for x in s.values()}, {torch.Tensor})

    def edited(self, kind, what, edit, late=False):
        """The same edit of torch's optimizer and of optc's, between steps; late: by what was read
        steps before."""
        a, b, kept = lists(), lists(), []
        oa, ob = make(torch.optim, kind, a), make(optc.torch, kind, b)
        for t in range(6):
            if t in (2, 4):
                kept += [edit(oa, a[0], AT[kind]), edit(ob, b[0], AT[kind])]
            grads(a, t), grads(b, t)
            oa.step(), ob.step()
        self.same(a, oa, b, ob, AT[kind], (kind, what))

    def test_asgd_without_mu(self):
        """Files and pickles of earlier versions lack asgd's `mu`, which follows from the steps and
        t0."""
        for rule in "asgd", "asgd+ema(0.5)":
            opt = optc.torch.Optimizer(ps := lists(), rule, lr=0.1, t0=1.0)
            for _ in range(4):
                grads(ps)
                opt.step()
            saved = copy.deepcopy(opt.state_dict())
            mu = [float(own.pop("mu")) for own in saved["state"].values()]
            self.assertEqual({round(x, 6) for x in mu}, {round(1 / 3, 6)})
            pickled, qs = copy.deepcopy(opt), [p.detach().clone().requires_grad_() for p in ps]
            for own in pickled.state.values():
                del own["mu"]
            loaded = optc.torch.Optimizer(qs, rule, lr=0.5)
            loaded.load_state_dict(saved)
            for other in pickled, loaded:
                grads(ps)
                there = other.param_groups[0]["params"]
                for p, q in zip(ps, there):
                    q.grad = p.grad.clone()
                other.step()
            opt.step()
            for other in pickled, loaded:
                for p, q in zip(ps, other.param_groups[0]["params"]):
                    self.assertTrue(torch.equal(p, q), rule)
                    for key, value in opt.state[p].items():
                        self.assertTrue(torch.equal(value, other.state[q][key]), (rule, key))

    def test_edits(self):
        for kind in AT:
            for what, edit in EDITS:
                with self.subTest(kind=kind, edit=what):
                    self.edited(kind, what, edit)
        for what, edit in STEPS:
            with self.subTest(step=what):
                self.edited("AdamW", what, edit)

    def test_kept_references(self):
        """A dictionary or a tensor that was read once may be edited at any later time."""
        def late(o, p, read, write):
            got = read(o, p)
            for t in range(5):
                grads(o.param_groups[0]["params"], t)
                if t == 3:
                    write(got)
                o.step()
            return [x.detach() for x in o.param_groups[0]["params"]]
        for read, write in ((lambda o, p: o.state, lambda s: s.clear()),
                            (lambda o, p: o.state[p], lambda s: s.update(exp_avg=torch.ones(4, 3))),
                            (lambda o, p: o.state[p],
                             lambda s: s.clear()), (lambda o, p: o.state[p]["exp_avg"],
                                                    lambda x: setattr(x, "data", torch.ones(4, 3))),
                            (lambda o, p: o.state[p]["exp_avg"], lambda x: x.zero_()),
                            (lambda o, p: o.state[p]["step"], lambda x: x.add_(5))):
            found = []
            for lib in (torch.optim, optc.torch):
                ps = lists()
                o = lib.AdamW(ps, lr=0.1)
                grads(ps, 9), o.step(), o.step()
                found.append(late(o, ps[0], read, write))
            for x, y in zip(*found):
                torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)

    def test_exchanged_states(self):
        """Two parameters exchange their entries, or the memory of a state."""
        def entries(o, p, q):
            o.state[p], o.state[q] = o.state[q], o.state[p]

        def memory(o, p, q):
            a, b = o.state[p]["exp_avg"], o.state[q]["exp_avg"]
            a.data, b.data = b.data, a.data

        def one_way(o, p, q):
            was = o.state[p]["exp_avg"].data
            o.state[p]["exp_avg"].data, o.state[q]["exp_avg"] = o.state[q]["exp_avg"].data, was
        # the second: two bindings
        for types in ((torch.float32,) * 2, (torch.float32, torch.float64)):
            for exchange in (entries, memory, one_way)[:3 if types[0] is types[1] else 1]:
                found = []
                for lib in (torch.optim, optc.torch):
                    ps = [
                        p.detach().to(t).requires_grad_()
                        for p, t in zip(lists(shapes=((4, 3),) * 2), types)
                    ]
                    o = lib.AdamW(ps, lr=0.1)
                    for t in range(5):
                        grads(ps, t)
                        if t == 3:
                            exchange(o, *ps)
                            if lib is torch.optim:     # which does not convert
                                for p in ps:
                                    for k in ("exp_avg", "exp_avg_sq"):
                                        o.state[p][k] = o.state[p][k].to(p.dtype)
                        o.step()
                    found.append(ps)
                for p, q in zip(*found):
                    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_held_tensors(self):
        """A state's tensor that a program holds stays the live state when tensors are bound again,
        and so does one that was assigned."""
        def states(o, p):
            return [x for s in list(o.state.values()) for x in s.values()]

        def moved(o, p):
            held, q = states(o, p), p[0].detach().clone().requires_grad_()
            o.param_groups[0]["params"][0], o.state[q], p[0] = q, o.state.pop(p[0]), q
            return held

        def then(act):
            def do(o, p):
                held = states(o, p)
                act(o, p)
                return held
            return do

        def assigned(o, p):
            o.state[p[0]].update(exp_avg=torch.full((4, 3), 0.5), step=torch.tensor(9.0))
            return states(o, p)

        def exchanged(o, p):
            o.state[p[0]], o.state[p[2]] = o.state[p[2]], o.state[p[0]]

        def same_twice(o, p):
            o.state[p[0]]["exp_avg"] = x = torch.full((4, 3), 0.5)
            o.state[p[0]]["exp_avg_sq"] = x.clone()
            return [x, o.state[p[0]]["exp_avg_sq"]]

        def transposed(o, p):
            p[0].data = p[0].data.t().contiguous().t()

        def thawed(o, p):
            p[0].requires_grad_(False), setattr(p[0], "grad", None), o.step()
            p[0].requires_grad_(True)

        def data(o, p):
            o.state[p[0]]["exp_avg"].data = torch.full((4, 3), 0.5)
        for what in (moved, assigned, same_twice, *map(then, (
                exchanged, transposed, thawed, data, lambda o, p: o.load_state_dict(o.state_dict()),
                lambda o, p: o.__setstate__(copy.copy(o).__getstate__()),
                lambda o, p: o.add_param_group({"params": lists(7)[:1]})))):
            found = []
            for lib in (torch.optim, optc.torch):
                ps = lists(shapes=((4, 3), (5,), (4, 3)))
                o = lib.AdamW(ps, lr=0.1)
                for t in range(6):
                    grads(ps, t)
                    if t == 2:
                        held = what(o, ps)
                        grads(ps, t)
                    if t == 4:
                        for x in held:
                            x.mul_(0.5) if x.dim() else x.add_(3)
                    o.step()
                found.append([*ps, *states(o, ps), *held])
            for x, y in zip(*found):
                torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6, msg=what.__qualname__)

    def test_held_first_states(self):
        """Those that Adagrad has before its first step too."""
        found = []
        for lib in (torch.optim, optc.torch):
            ps = lists()
            o = lib.Adagrad(ps, lr=0.1)
            held = [o.state[p]["sum"] for p in ps]
            for t in range(3):
                grads(ps, t), o.step()
                for x in held:
                    x.add_(1)
            found.append([*ps, *held])
        for x, y in zip(*found):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)

    def test_shared_entries(self):
        """One tensor for two parameters: it is the state of the first, and the other has a copy."""
        ps = lists(shapes=((4, 3), (4, 3)))
        opt = optc.torch.AdamW(ps, lr=0.1)
        grads(ps), opt.step()
        opt.state[ps[1]] = dict(opt.state[ps[0]])
        grads(ps), opt.step()
        a, b = (opt.state[p]["exp_avg"] for p in ps)
        self.assertNotEqual(a.data_ptr(), b.data_ptr())
        self.assertEqual([opt.state[p]["step"].item() for p in ps], [2, 2])
        grads(ps), opt.step(), opt.step()
        self.assertEqual([opt.state[p]["step"].item() for p in ps], [4, 4])
        self.assertIs(opt.state[ps[0]]["exp_avg"], a)

    def test_shallow_copies(self):
        """copy.copy shares groups and states, as in torch: both optimizers step the same run."""
        found = []
        for lib in (torch.optim, optc.torch):
            ps = lists()
            first = lib.AdamW(ps, lr=0.1)
            grads(ps, 0), first.step(), first.step()
            second = copy.copy(first)
            for t, o in enumerate((second, first, first, second, first)):
                o.param_groups[0]["lr"] = 0.1 / (t + 1)
                grads(ps, t + 1), o.step()
            self.assertEqual([first.state[p]["step"].item() for p in ps], [7, 7])
            found.append(ps)
        for p, q in zip(*found):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_unused_state_costs_nothing(self):
        """Without a use of opt.state, a step compares no state; a reader who keeps nothing pays
        once."""
        from optc.torch import _state
        ps = lists()
        opt = optc.torch.AdamW(ps)
        grads(ps), opt.step(), opt.step()
        self.assertIs(type(opt.state), _state.States)
        self.assertFalse(opt.state.all or opt.state.used)
        kept = opt.state_dict()
        opt.state[ps[0]]["exp_avg"].norm()
        self.assertTrue(opt.state.used)
        opt.step()
        self.assertFalse(opt.state.all or opt.state.used)
        # it shares memory, as torch's does
        self.assertEqual(kept["state"][0]["step"].item(), 3)
        entry = opt.state[ps[0]]
        opt.step()
        self.assertEqual(opt.state.used, {ps[0]})
        del entry
        opt.step()
        self.assertFalse(opt.state.used)

    def test_refused_edits(self):
        """What torch fails at, too; the step changes nothing."""
        for edit in (lambda s: s.pop("exp_avg"), lambda s: s["exp_avg"].set_(),
                     lambda s: s.pop("step"), lambda s: s.update(exp_avg=torch.ones(3, 4)),
                     lambda s: s.update(step=torch.tensor(-1.0)),
                     lambda s: s.update(exp_avg=torch.ones(4, 3, dtype=torch.int64)),
                     lambda s: [s.pop(k) for k in ("exp_avg", "exp_avg_sq")]):
            ps = lists()
            opt = optc.torch.AdamW([("first", ps[0]), ("second", ps[1])])
            grads(ps), opt.step()
            edit(opt.state[ps[0]])
            was = [p.detach().clone() for p in ps], copy.deepcopy(opt.state_dict()["state"][1])
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, "first"):
                    opt.step()
            self.assertTrue(all(map(torch.equal, was[0], ps)))
            self.assertTrue(torch.equal(was[1]["step"], opt.state[ps[1]]["step"]))
            del opt.state[ps[0]]
            opt.step()
            self.assertEqual([opt.state[p]["step"].item() for p in ps], [1, 2])

    def test_other_rules(self):
        """States that do not begin as zeros, states of groups and of matrices begin anew as they
        did at first."""
        for spec, given in (("adamw+ema(0.5)", {}), ("adafactor", {}), ("muon", {}), ("soap", {}),
                            ("lamb", {})):
            ps, qs = lists(), lists()
            a, b = (
                optc.torch.Optimizer([("w", x[0]), ("b", x[1])], spec, **given) for x in (ps, qs))
            grads(ps), a.step()
            a.state.clear()
            for p, q in zip(ps, qs):
                q.data.copy_(p.data)
            for t in range(3):
                grads(ps, t), grads(qs, t)
                a.step(), b.step()
            for p, q in zip(ps, qs):
                self.assertTrue(torch.equal(p, q), spec)
                for k in b.state[q]:
                    self.assertTrue(torch.equal(a.state[p][k], b.state[q][k]), (spec, k))

    def test_released(self):
        """Edits act where gradients are stepped in backward as well."""
        a, b = model(), model()
        oa, ob = torch.optim.AdamW(a.parameters(),
                                   lr=0.1), optc.torch.AdamW(b.parameters(), lr=0.1,
                                                             release_grads=True)
        train(a, oa, 2), train(b, ob, 2)
        for o, m in ((oa, a), (ob, b)):
            o.state[m[0].weight]["exp_avg"] = torch.ones_like(m[0].weight)
            del o.state[m[2].bias]
        self.close(train(a, oa, 3), train(b, ob, 3))

    def test_copies_are_plain(self):
        ps = lists()
        opt = optc.torch.AdamW(ps)
        grads(ps), opt.step()
        for made in (pickle.loads(pickle.dumps(opt.state)), copy.deepcopy(opt.state),
                     opt.state.copy()):
            self.assertIsInstance(made, defaultdict)
            self.assertEqual(len(made), 2)
        self.assertIs(type(pickle.loads(pickle.dumps(opt.state))), defaultdict)
        self.assertEqual(set(map(type, dict(opt.state).values())), {dict})
        out = io.BytesIO()
        torch.save(opt.state_dict(), out)
        self.assertLess(len(out.getvalue()), 5000)
        out.seek(0)
        torch.load(out, weights_only=True)
        (qs, oc) = copy.deepcopy((ps, opt))
        oc.state[qs[0]]["exp_avg"].zero_()
        self.assertTrue(opt.state[ps[0]]["exp_avg"].any())


if __name__ == "__main__":
    import unittest
    unittest.main()
