"""Edits of opt.state act as in torch.optim; files that do not fit are refused."""
import copy
import io
import pickle
import unittest.mock
import warnings
from collections import defaultdict
from operator import is_

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
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
    ("del", lambda o, p, k: o.state.__delitem__(p)),
    ("pop", lambda o, p, k: o.state.pop(p)),
    ("popitem", lambda o, p, k: o.state.popitem()),
    ("clear one", lambda o, p, k: o.state[p].clear()),
    ("empty one", lambda o, p, k: o.state.update({p: {}})),
    ("replace", lambda o, p, k: replace(o, p, k, torch.full_like(p, 0.5))),
    ("update", lambda o, p, k: o.state[p].update({k: torch.full_like(p, 0.5)})),
    ("whole entry", lambda o, p, k: o.state.update({p: {**o.state[p], k: torch.full_like(p, 0.5)}})),
    ("setdefault", lambda o, p, k: o.state.setdefault(p, {})[k].fill_(0.5)),
    ("in place", lambda o, p, k: o.state[p][k].mul_(0)),
    ("data", lambda o, p, k: setattr(o.state[p][k], "data", torch.full_like(p, 0.5))),
    ("set_", lambda o, p, k: o.state[p][k].set_(torch.full_like(p, 0.5))),
    ("data, old one kept", swapped),
    ("swap_tensors", lambda o, p, k: torch.utils.swap_tensors(o.state[p][k], torch.full_like(p, 0.5).detach())),
    ("offload", offload),
    ("offload data", offload_data),
    ("items", lambda o, p, k: [s[k].add_(1) for _, s in o.state.items()]),
    ("deep copy", lambda o, p, k: setattr(o, "state", defaultdict(dict, zip(o.state, copy.deepcopy(
        list(o.state.values())))))),
    ("tree", lambda o, p, k: setattr(o, "state", _pytree.tree_map_only(
        torch.Tensor, lambda x: x * 0.5 if x.dim() else x, o.state))),
    ("load", lambda o, p, k: o.load_state_dict(copy.deepcopy(o.state_dict()))),
    ("load halved", lambda o, p, k: o.load_state_dict(_pytree.tree_map_only(
        torch.Tensor, lambda x: x if x.dim() == 0 else x / 2, copy.deepcopy(o.state_dict())))),
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
            torch.testing.assert_close(oa.state[p][key], ob.state[q][key], rtol=1e-5, atol=1e-6, msg=what)
            if "step" in oa.state[p]:
                self.assertEqual(oa.state[p]["step"].item(), ob.state[q]["step"].item(), what)
        sa, sb = oa.state_dict()["state"], ob.state_dict()["state"]
        self.assertEqual(list(sa), list(sb), what)
        self.assertEqual({type(x) for x in (sb, *sb.values())}, {dict})
        self.assertEqual({type(x) for s in sb.values() for x in s.values()}, {torch.Tensor})

    def edited(self, kind, what, edit, late=False):
        """The same edit of torch's optimizer and of optc's, between steps; late: by what was read steps before."""
        a, b, kept = lists(), lists(), []
        oa, ob = make(torch.optim, kind, a), make(optc.torch, kind, b)
        for t in range(6):
            if t in (2, 4):
                kept += [edit(oa, a[0], AT[kind]), edit(ob, b[0], AT[kind])]
            grads(a, t), grads(b, t)
            oa.step(), ob.step()
        self.same(a, oa, b, ob, AT[kind], (kind, what))

    def test_asgd_without_mu(self):
        """Files and pickles of earlier versions lack asgd's `mu`, which follows from the steps and t0."""
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
                            (lambda o, p: o.state[p], lambda s: s.clear()),
                            (lambda o, p: o.state[p]["exp_avg"], lambda x: setattr(x, "data", torch.ones(4, 3))),
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
        for types in ((torch.float32,) * 2, (torch.float32, torch.float64)):       # the second: two bindings
            for exchange in (entries, memory, one_way)[:3 if types[0] is types[1] else 1]:
                found = []
                for lib in (torch.optim, optc.torch):
                    ps = [p.detach().to(t).requires_grad_() for p, t in zip(lists(shapes=((4, 3),) * 2), types)]
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
        """Without a use of opt.state, a step compares no state; a reader who keeps nothing pays once."""
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
        self.assertEqual(kept["state"][0]["step"].item(), 3)       # it shares memory, as torch's does
        entry = opt.state[ps[0]]
        opt.step()
        self.assertEqual(opt.state.used, {ps[0]})
        del entry
        opt.step()
        self.assertFalse(opt.state.used)

    def test_refused_edits(self):
        """What torch fails at, too; the step changes nothing."""
        for edit in (lambda s: s.pop("exp_avg"), lambda s: s["exp_avg"].set_(), lambda s: s.pop("step"),
                     lambda s: s.update(exp_avg=torch.ones(3, 4)), lambda s: s.update(step=torch.tensor(-1.0)),
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
        """States that do not begin as zeros, states of groups and of matrices begin anew as they did at first."""
        for spec, given in (("adamw+ema(0.5)", {}), ("adafactor", {}), ("muon", {}), ("soap", {}), ("lamb", {})):
            ps, qs = lists(), lists()
            a, b = (optc.torch.Optimizer([("w", x[0]), ("b", x[1])], spec, **given) for x in (ps, qs))
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
        oa, ob = torch.optim.AdamW(a.parameters(), lr=0.1), optc.torch.AdamW(b.parameters(), lr=0.1, release_grads=True)
        train(a, oa, 2), train(b, ob, 2)
        for o, m in ((oa, a), (ob, b)):
            o.state[m[0].weight]["exp_avg"] = torch.ones_like(m[0].weight)
            del o.state[m[2].bias]
        self.close(train(a, oa, 3), train(b, ob, 3))

    def test_copies_are_plain(self):
        ps = lists()
        opt = optc.torch.AdamW(ps)
        grads(ps), opt.step()
        for made in (pickle.loads(pickle.dumps(opt.state)), copy.deepcopy(opt.state), opt.state.copy()):
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


class Files(Case):
    def file(self, kind=torch.optim.AdamW, **given):
        ps = lists()
        opt = kind([("first", ps[0]), ("second", ps[1])], **given)
        grads(ps), opt.step(), opt.step()
        return copy.deepcopy(opt.state_dict())

    def test_refused(self):
        """By name, and the optimizer is as it was."""
        def change(key, value):
            def f(own):
                own[key] = value(own[key]) if callable(value) else value
            return f
        wrong = [("exp_avg_sq", lambda own: own.pop("exp_avg_sq")), ("exp_avg", change("exp_avg", None)),
                 ("'step'", lambda own: own.pop("step")), ("step", change("step", torch.tensor([1.0, 2.0])))]
        wrong += [("shape", change("exp_avg", f))
                  for f in (lambda x: x.t().contiguous(), lambda x: x[:2], torch.flatten)]
        wrong += [("floating", change("exp_avg", f)) for f in (torch.Tensor.long, lambda x: x.to(torch.complex64))]
        wrong += [("step", change("step", x)) for x in (2 ** 64 + 4096, 2 ** 53, -1, 1.5, float("nan"), float("inf"),
                                                       "x", 10 ** 400, None, torch.tensor(float("nan")))]
        for bound in (False, True):
            ps = lists(3)
            opt = optc.torch.AdamW([("first", ps[0]), ("second", ps[1])], lr=0.25)
            grads(ps)
            if bound:
                opt.step()
            was = copy.deepcopy(opt.state_dict())
            for says, edit in wrong:
                saved = self.file()
                edit(saved["state"][0])
                with self.assertRaisesRegex(ValueError, "first"):
                    opt.load_state_dict(saved)
                with self.assertRaisesRegex(ValueError, says):
                    opt.load_state_dict(saved)
                self.assertEqual(str(opt.state_dict()), str(was))
            opt.step()
            self.assertEqual(opt.state[ps[0]]["step"].item(), 1 + bound)
        saved = self.file()
        del saved["param_groups"][0]["param_names"], saved["state"][1]["exp_avg"]
        with self.assertRaisesRegex(ValueError, r"param_groups\[0\]\[1\] \(number 1 of the file\)"):
            optc.torch.AdamW(lists()).load_state_dict(saved)

    def test_another_order(self):
        """torch assigns by position without a word; names that only changed places are a likely mistake."""
        saved = self.file(optc.torch.AdamW)
        for names, warned in ((("first", "second"), 0), (("second", "first"), 1), (("second", "third"), 0)):
            ps = lists(shapes=((4, 3), (5,)))
            opt = optc.torch.AdamW(list(zip(names, ps)))
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                opt.load_state_dict(copy.deepcopy(saved))
            self.assertEqual(len(found), warned)
            for w in found:
                self.assertIn("the states of 'first' become those of 'second'", str(w.message))
                self.assertEqual(w.filename, __file__)

    def test_another_order_by_name(self):
        """torch.distributed.checkpoint assigns states by name, whatever the order of the file's param_names."""
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
        m = model()
        opt = optc.torch.AdamW(m.named_parameters(), lr=0.1)
        train(m, opt, 2)
        n, saved = copy.deepcopy((m, get_optimizer_state_dict(m, opt)))
        other = optc.torch.AdamW(list(n.named_parameters())[::-1], lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            set_optimizer_state_dict(n, other, saved)
        self.assertEqual(train(n, other, 3), train(m, opt, 3))

    def test_refused_steps(self):
        """A binding that refuses a count of steps, as a captured one may, leaves states and counts of all bindings."""
        ps = [torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.float64, requires_grad=True)]
        opt = optc.torch.AdamW(ps)
        grads(ps), opt.step(), opt.step()
        held, t = [opt.state[p]["exp_avg"] for p in ps], [b.binding.get_t(0) for b in opt._bounds]
        was = copy.deepcopy(held)
        for p in ps:
            opt.state[p].update(exp_avg=torch.full_like(p, 7.0), step=torch.tensor(5.0))
        with unittest.mock.patch.object(opt._bounds[1].binding, "set_t", side_effect=optc.Error("refused")):
            for _ in range(2):                         # the edit stays, and is refused again
                with self.assertRaisesRegex(optc.Error, "refused"):
                    opt.step()
                self.assertEqual([x.tolist() for x in held], [x.tolist() for x in was])
                self.assertEqual([b.binding.get_t(0) for b in opt._bounds], t)
        opt.step()
        self.assertEqual([opt.state[p]["step"].item() for p in ps], [6, 6])
        self.assertTrue(all((opt.state[p]["exp_avg"] > 5).all() for p in ps))

    def test_refused_groups(self):
        """A group's values under other names, too: the optimizer is as it was, and steps on."""
        wrong = {"adamw": ({"betas": (0.9,)}, {"betas": 0.9}, {"betas": ("x", 0.9)}, {"beta1": "x"}, {"beta2": 1.5},
                           {"betas": 0.9, "beta1": 0.9}, {"lr": -1.0}, {"lr": (1e-3,)}),
                 "muon": ({"adamw_betas": (0.9,)}, {"adamw_betas": 0.9}, {"adamw.betas": "xy"}, {"adamw_lr": "x"},
                          {"ns_steps": "x"})}
        for rule, each in wrong.items():
            ps = lists()
            opt = optc.torch.Optimizer(ps, rule, lr=0.25)
            grads(ps), opt.step()
            saved = copy.deepcopy(opt.state_dict())
            opt.step()
            was, held = str(opt.state_dict()), [opt.state[p][k] for p in ps for k in opt.state[p]]
            for group in each:
                file = copy.deepcopy(saved)
                file["param_groups"][0].update(group)
                with self.subTest(rule, group=group), self.assertRaises((ValueError, TypeError)):
                    opt.load_state_dict(file)
                self.assertEqual(str(opt.state_dict()), was)
            self.assertTrue(all(map(is_, held, (opt.state[p][k] for p in ps for k in opt.state[p]))))
            opt.step()
            saved["param_groups"][0].update({"beta1": 0.5} if rule == "adamw" else {"adamw_betas": (0.5, 0.999)})
            opt.load_state_dict(saved)                 # well formed, under another name
            group = opt.param_groups[0]
            self.assertEqual(group["betas"][0] if rule == "adamw" else group["adamw.beta1"], 0.5)
            self.assertNotIn("beta1", group), self.assertNotIn("adamw_betas", group)

    def test_states_of_groups(self):
        """States of whole groups stay if tensors are bound again, and are in the file if the first parameter has had no
        gradient: a sum of gradients over all tensors and steps."""
        def thaw(o, ps):
            for p in ps:
                p.requires_grad_(True)
        spec = """return optimizer { name = "total", hyper = { lr = 1 }, state = { s = zeros "group", n = zeros },
          step = function() s = s + global.sum(g)  n = n + 1  p = p - lr * s end }"""
        def add(o, ps):
            o.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
        changes = {"thaw": thaw, "add": add,
                   "file": lambda o, ps: o.load_state_dict(pickle.loads(pickle.dumps(o.state_dict())))}
        for frozen in (0, 1):
            for how, change in changes.items():
                ps = [torch.zeros(1, requires_grad=how != "thaw" or k != frozen) for k in range(2)]
                o = optc.torch.Optimizer(ps, spec=spec)
                for t in range(4):
                    if t == 2:
                        change(o, ps)
                    for k, p in enumerate(ps):
                        p.grad = torch.ones(1) if k != frozen or t > 2 else None
                    o.step()
                self.assertEqual([p.item() for p in ps], [-11.0, -5.0] if frozen else [-5.0, -11.0])
                with self.subTest(how):
                    own = [o.state[p].get("s") for p in ps]
                    self.assertEqual(own[0].item(), 5)         # the group's first parameter shows it, and no other
                    self.assertIsNone(own[1])

    def test_states_of_groups_apart(self):
        """A group that is frozen as a whole keeps its states while other groups are bound again. In a group of two
        types each type has a state of its own, which stays with its tensors."""
        spec = """return optimizer { name = "runs", hyper = { lr = 1 }, state = { s = zeros "group", n = zeros },
          step = function() s = s + 1  n = n + g  p = p - lr * s * g end }"""
        for types in ([torch.float32, torch.float32], [torch.float32, torch.float64, torch.float64]):
            ps = [torch.zeros(1, dtype=t, requires_grad=True) for t in types]
            one = len(set(types)) == 1
            o = optc.torch.Optimizer([{"params": [p]} for p in ps] if one else ps, spec=spec)

            def step(*on):
                for k, p in enumerate(ps):
                    p.requires_grad_(k in on), setattr(p, "grad", torch.ones_like(p) if k in on else None)
                o.step()
            step(*range(len(ps)))
            step(0)
            o.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})    # binds again
            step(0) if one else step(0, 2)
            step(*range(len(ps)))
            own = [o.state[p].get("s") for p in ps]
            self.assertEqual([None if s is None else s.item() for s in own], [4, 3] if one else [4, 3, None])
            self.assertEqual(ps[1].item(), -4.0)

    def test_missed_steps(self):
        """`every` counts steps in which a tensor had no gradient: they are in copies and files, and count when tensors
        are bound again."""
        spec = """return optimizer { name = "third", hyper = { lr = 1 },
          step = function() every(3, function() p = p - lr * g end) end }"""
        copies = {"file": lambda o, ps: o.load_state_dict(pickle.loads(pickle.dumps(o.state_dict()))),
                  "thaw": lambda o, ps: ps[2].requires_grad_(True),
                  "copy": lambda o, ps: None, "edit": lambda o, ps: o.state[ps[0]].update(step=torch.tensor(1.0))}
        for at in range(7):
            for how, change in copies.items():
                ps = [torch.zeros(1, requires_grad=k < 2) for k in range(3)]
                o = optc.torch.Optimizer(ps, spec=spec)
                for t in range(1, 8):
                    if t in (at + 1, at + 3):
                        if how != "edit" or ps[0] in o.state and o.state[ps[0]]["step"] == 1:
                            change(o, ps)
                        if how == "copy":
                            ps, o = copy.deepcopy((ps, o))
                    for k, p in enumerate(ps):
                        p.grad = torch.ones(1) if t != k + 1 and t != 5 and p.requires_grad else None
                    o.step()
                self.assertEqual([p.item() for p in ps[:2]], [-2.0, -2.0], (how, at))
        saved = o.state_dict()
        self.assertEqual([own["missed"] for own in saved["state"].values()], [2, 2])
        for wrong in (-1, 0.5, float("nan"), "two"):
            saved["state"][0]["missed"] = wrong
            with self.assertRaisesRegex(ValueError, "'missed' of param_groups.0..0. .*whole number"):
                o.load_state_dict(saved)
        for how in ("add", "file", "removed"):         # the tensor that had a gradient at each step leaves
            ps, acts = [torch.zeros(1, requires_grad=True) for _ in range(3)], []
            o = optc.torch.Optimizer(ps[:2], spec=spec)
            for t in range(1, 10):
                ps[0].grad = torch.ones(1) if t < 5 else None
                ps[1].grad = torch.ones(1) if t > 2 else None
                if t == 5:
                    ps[0].requires_grad_(False)
                    if how == "add":
                        o.add_param_group({"params": ps[2:]})
                    elif how == "file":
                        copies["file"](o, ps)
                    else:
                        del o.state[ps[0]]
                was = ps[1].item()
                o.step()
                acts += [t] if ps[1].item() != was else []
            self.assertEqual(acts, [3, 6, 9], how)

    def test_matrix_rules(self):
        """What they keep depends on the tensor: it is seen at the first step, which changes nothing."""
        for spec, key in (("muon", "adamw.v"), ("adafactor", "variance"), ("soap", "adamw.v")):
            saved = self.file(lambda ps: optc.torch.Optimizer(ps, spec))
            self.assertIsNotNone(saved["state"][1].pop(key), spec)
            ps = lists()
            opt = optc.torch.Optimizer([("first", ps[0]), ("second", ps[1])], spec)
            opt.load_state_dict(saved)
            grads(ps)
            was = [p.detach().clone() for p in ps]
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, "second.*%s" % key):
                    opt.step()
            self.assertTrue(all(map(torch.equal, was, ps)))
            opt.load_state_dict(self.file(lambda ps: optc.torch.Optimizer(ps, spec)))
            opt.step()

    def test_taken(self):
        """torch's None buffers, dimensions of size 1, numbers as steps, other floating types, step 0."""
        saved = self.file()
        own = saved["state"][0]
        own["exp_avg"], own["step"] = own["exp_avg"].unsqueeze(0).to(torch.float64), 2
        own["exp_avg_sq"] = own["exp_avg_sq"].unsqueeze(1)
        saved["state"][1]["step"] = torch.tensor(2 ** 24, dtype=torch.int64)
        ps = lists()
        opt = optc.torch.AdamW(ps)
        opt.load_state_dict(saved)
        grads(ps), opt.step()
        self.assertEqual([opt.state[p]["step"].item() for p in ps][0], 3)
        self.assertEqual(opt.state[ps[0]]["exp_avg"].dtype, torch.float32)
        for given in ({}, {"momentum": 0.9, "dampening": 0.5}):
            saved = self.file(torch.optim.SGD, **given)
            a, b = lists(), lists()
            oa, ob = torch.optim.SGD(a, **given), optc.torch.SGD(b, **given)
            oa.load_state_dict(saved), ob.load_state_dict(saved)
            for o, ps in ((oa, a), (ob, b)):
                grads(ps), o.step()
                o.param_groups[0].update(momentum=0.9, dampening=0.5)
                o.step(), o.step()
            for p, q in zip(a, b):
                torch.testing.assert_close(p, q)

    def test_momentum_beside_a_wrapper(self):
        """A momentum buffer that is not there begins anew; what a wrapper keeps stays as it is."""
        saved = self.file(lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9))
        ps = lists()
        opt = optc.torch.SGD(ps, lr=0.1, momentum=0.9, with_=["ema(0.5)"])
        opt.load_state_dict(saved)
        grads(ps)
        opt.step()
        for p in ps:
            torch.testing.assert_close(opt.state[p]["ema.avg"], p.detach(), rtol=2, atol=2)
            self.assertGreater(float(opt.state[p]["ema.avg"].norm()), 0.5 * float(p.detach().norm()))

    def test_default_type(self):
        """Files are checked whatever torch's default type is."""
        saved = self.file()
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            ps = [torch.nn.Parameter(p.detach().float()) for p in lists()]
            optc.torch.AdamW(ps).load_state_dict(saved)
        finally:
            torch.set_default_dtype(before)

    def test_states_by_shape(self):
        """A rule without a fallback rule whose matrices and vectors have other states: both are loaded, and a missing
        one is refused at the first step."""
        shapes = ((6, 8), (5,))
        ps, qs = lists(shapes=shapes), lists(shapes=shapes)
        a, b = (optc.torch.Optimizer(x, "amuse") for x in (ps, qs))
        grads(ps), a.step()
        saved = copy.deepcopy(a.state_dict())
        with torch.no_grad():
            for p, q in zip(ps, qs):
                q.copy_(p)
        b.load_state_dict(saved)
        for o, x in ((a, ps), (b, qs)):
            grads(x, 1), o.step()
        self.assertTrue(all(map(torch.equal, ps, qs)))
        del saved["state"][1]["v"]
        b.load_state_dict(saved)
        with self.assertRaisesRegex(ValueError, "has no 'v', which amuse keeps"):
            b.step()

    def test_lower_triangles(self):
        """C and D of psgd_kron: other values are refused by name, and nothing changes."""
        def made(shapes=((6, 4), (5,))):
            ps = lists(shapes=shapes)
            return ps, optc.torch.Optimizer(ps, "psgd_kron", lr=0.01)
        (ps, a), (qs, b), (_, fresh) = made(), made(), made()
        for t in range(2):
            grads(ps, t), a.step()
            grads(qs, t), b.step()
        bad = copy.deepcopy(a.state_dict())
        bad["state"][0]["C"].view(6, 6)[2, 5] = 0.25
        says = (r"state 'C' of tensor 'param_groups\[0\]\[0\]' is a lower triangle: row 2, column 5 is 0.25; set "
                "values right of the diagonal to 0, or transpose the matrix")
        for opt in (b, fresh):
            with self.assertRaisesRegex(ValueError, says):
                opt.load_state_dict(bad)
        b.load_state_dict(copy.deepcopy(a.state_dict()))
        grads(ps, 3), a.step()
        grads(qs, 3), b.step()
        self.assertTrue(all(map(torch.equal, ps, qs)))
        own = b.state[qs[0]]
        kept, own["D"] = own["D"], torch.full((16,), 0.5, dtype=torch.float64)
        with self.assertRaisesRegex(ValueError, "row 0, column 1 is 0.5"):
            b.step()
        own["D"] = kept
        with FakeTensorMode():
            fake = torch.zeros(36)
        for value in (torch.zeros(36, device="meta"), fake):
            bad["state"][0]["C"] = value
            for opt in (b, fresh):
                with self.assertRaisesRegex(RuntimeError, r"state 'C' of param_groups\[0\]\[0\].* has no memory"):
                    opt.load_state_dict(bad)
        grads(ps, 4), a.step()
        grads(qs, 4), b.step()
        self.assertTrue(all(map(torch.equal, ps, qs)))
        a.add_param_group({"params": lists(7, ((3, 3),))})             # binds again, with the same values
        grads(ps, 5), a.step()


if __name__ == "__main__":
    import unittest
    unittest.main()
