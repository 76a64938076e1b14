"""Names, routing, splits and tags belong to the parameters that are stepped: also if these were
replaced, appended or copied after the optimizer was made."""
import copy
import pickle
import unittest
import warnings

import torch
from torch import nn

import optc.torch
from case import Case, Evaluated, grads


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(7, 4)
        self.qkv = nn.Linear(4, 12, bias=False)
        self.proj = nn.Linear(12, 4)
        self.lm_head = nn.Linear(4, 7, bias=False)


def net():
    torch.default_generator.manual_seed(3)
    return Net()


def replace_all(groups, new):
    """As accelerate does before the first step: stand-ins, then a list of the new parameters."""
    for g in groups:
        for i in range(len(g["params"])):
            g["params"][i] = torch.empty(1)
        g["params"] = [new.pop(0) for _ in g["params"]]


def replace_each(groups, new):
    for g in groups:
        for i in range(len(g["params"])):
            g["params"][i] = new.pop(0)


def params_of(opt):
    return [p for g in opt.param_groups for p in g["params"]]


def steps(opt, n=2):
    for k in range(n):
        grads(params_of(opt), k)
        opt.step()
    return [p.detach().clone() for p in params_of(opt)]


class Replaced(Evaluated):
    """Parameters that were replaced are stepped as if the optimizer was made with them."""
    def same(self, a, b, what):
        self.assertTrue(all(map(torch.equal, a, b)), what)

    def test_before_the_first_step(self):
        for rule in ("muon", "soap", "normuon"):
            for replace in (replace_all, replace_each):
                for named in (True, False):
                    m, new = net(), net()
                    split = {"qkv.weight": 3}
                    opt, want = (optc.torch.Optimizer(
                        x if named else list(x.named_parameters()), rule, split=split, lr=0.1)
                        for x in (m, net()))
                    sort = optc.torch.sorted_by(want)
                    replace(opt.param_groups, list(new.parameters()))
                    del m
                    what = rule, replace.__name__, named
                    self.assertEqual(optc.torch.sorted_by(opt), sort, what)
                    self.same(steps(opt), steps(want), what)

    def test_in_another_order(self):
        """The same objects in another order keep their parts, also before the first step."""
        for first in (0, 1):
            for order in ((1, 0, 2, 3), (3, 2, 1, 0)):
                torch.default_generator.manual_seed(0)
                params = [("wte.weight", nn.Parameter(torch.randn(6, 6)))] + [
                    ("h.%d.weight" % i, nn.Parameter(torch.randn(6, 6))) for i in range(2)] + [
                    ("b", nn.Parameter(torch.randn(6)))]
                opt = optc.torch.Muon(params, lr=0.1)
                steps(opt, first)
                known = dict(zip(map(id, params_of(opt)), opt._roles.parts(opt)[0]))
                self.assertEqual(len(set(known.values())), 2)
                group = opt.param_groups[0]
                group["params"][:] = [group["params"][i] for i in order]
                parts = opt._roles.parts(opt)[0]
                self.assertEqual([known[id(p)] for p in group["params"]], parts)
                self.assertEqual(optc.torch.sorted_by(opt)["wte.weight"], "rest")

    def test_without_names(self):
        """Answers of sort= and split=, which may depend on the objects, stay at their positions."""
        m, new, other = net(), net(), net()
        def make(m):
            chosen = {id(m.qkv.weight), id(m.proj.weight)}
            return optc.torch.Optimizer(m.parameters(), "muon", sort=lambda _, p: id(p) in chosen,
                                        split=lambda _, p: 3 if p is m.qkv.weight else 0, lr=0.1)
        opt, want = make(m), make(other)
        replace_each(opt.param_groups, list(new.parameters()))
        self.assertEqual(list(optc.torch.sorted_by(opt).values()),
                         ["rest", "matrix", "matrix", "rest", "rest"])
        self.same(steps(opt), steps(want), "unnamed")

    def test_between_steps(self):
        m = net()
        opt = optc.torch.Muon(m, lr=0.1)
        steps(opt, 1)
        m.wte.weight = opt.param_groups[0]["params"][0] = nn.Parameter(m.wte.weight.detach() + 1)
        steps(opt, 1)
        self.assertEqual(optc.torch.sorted_by(opt)["wte.weight"], "rest")
        self.assertIn("adamw.m", opt.state[m.wte.weight])
        group = opt.param_groups[0]                    # the others keep their names and parts
        del group["params"][0]
        late = nn.Parameter(torch.randn(5, 5))
        group["params"].append(late)
        steps(opt, 1)
        self.assertEqual(optc.torch.sorted_by(opt), {
            "qkv.weight": "matrix", "proj.weight": "matrix", "proj.bias": "rest",
            "lm_head.weight": "rest", "param_groups[0][4]": "matrix"})

    def test_names_of_a_file(self):
        """A file brings other names: they change nothing, also if parameters are replaced then."""
        def make(prefix, m):
            return optc.torch.Muon([(prefix + n, p) for n, p in m.named_parameters()], lr=0.1,
                                   sort=lambda n, _: n == "wte.weight")
        opt, want, other = make("", net()), make("", net()), make("module.", net())
        steps(opt, 1), steps(want, 1)
        file = opt.state_dict()
        file["param_groups"][0]["param_names"] = other.param_groups[0]["param_names"]
        for replaced in (False, True):
            opt.load_state_dict(copy.deepcopy(file)), want.load_state_dict(copy.deepcopy(file))
            before = params_of(opt)
            if replaced:
                new = [nn.Parameter(p.detach().clone()) for p in before]
                replace_each(opt.param_groups, list(new))
                for p, q in zip(before, new):
                    opt.state[q] = opt.state.pop(p)
            self.same(steps(opt, 2), steps(want, 2), replaced)

    def test_in_a_frozen_group(self):
        m, late = net(), nn.Parameter(torch.ones(3))
        m.wte.requires_grad_(False)
        opt = optc.torch.AdamW([{"params": list(x.parameters())} for x in (m.wte, m.proj)])
        steps(opt, 0), grads(m.proj.parameters()), opt.step()
        opt.param_groups[0]["params"][0] = late
        late.grad = torch.ones(3)
        opt.step()
        self.assertTrue((late < 1).all())

    def test_release_grads(self):
        """A parameter with the id of an older one gets its hook; a replaced one is left alone."""
        old, new = (nn.Parameter(torch.ones(3)) for _ in "ab")
        opt = optc.torch.SGD([old], lr=1, release_grads=True)
        old.sum().backward()
        opt._watched[id(new)] = opt._watched[id(old)]  # as if an older parameter had had this id
        opt.param_groups[0]["params"][0] = new
        opt.step()
        new.sum().backward(), old.sum().backward()
        self.assertEqual((old.tolist(), new.tolist()), ([0] * 3, [0] * 3))

    def test_copies(self):
        """Copies and pickles keep the answers of functions that they do not have, also when a
        group is added."""
        def make(m):
            return optc.torch.Muon(list(m.named_parameters()), lr=0.1,
                                   sort=lambda n, p: n == "wte.weight")
        for way in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), copy.copy):
            opt = make(net())
            want = optc.torch.sorted_by(opt)
            new = way(opt)
            new.add_param_group({"params": [("late", nn.Parameter(torch.ones(3)))]})
            self.assertEqual(optc.torch.sorted_by(new), {**want, "late": "rest"})
            steps(new, 1)
            self.assertIn("adamw.m", new.state[params_of(new)[1]])


class Appended(Case):
    def test_stepped_as_torch(self):
        """A parameter that is appended to a named group, before the first step and later."""
        both = []
        for kind in (optc.torch.AdamW, torch.optim.AdamW):
            m = net()
            opt = kind(list(m.named_parameters()), lr=0.1)
            group = opt.param_groups[0]
            torch.default_generator.manual_seed(5)
            group["params"].append(nn.Parameter(torch.randn(3, 2)))
            steps(opt, 2)
            group["params"] += [nn.Parameter(torch.randn(6))]
            both.append(steps(opt, 2))
            self.assertEqual(float(opt.state[group["params"][-1]]["step"]), 2)
        self.assertEqual(len(both[0]), 7)
        for a, b in zip(*both):
            self.assertTrue(torch.allclose(a, b, atol=1e-6))

    def test_named(self):
        m = net()
        opt = optc.torch.AdamW(list(m.named_parameters()))
        q = nn.Parameter(torch.ones(2))
        opt.param_groups[0]["params"].append(q)
        steps(opt, 1)
        again = optc.torch.AdamW(list(net().named_parameters()))
        again.param_groups[0]["params"].append(nn.Parameter(torch.ones(2)))
        file = opt.state_dict()
        again.load_state_dict(file)
        self.assertIn("exp_avg", again.state[params_of(again)[-1]])
        file["state"][5]["exp_avg"] = torch.ones(3)
        with self.assertRaisesRegex(ValueError, r"param_groups\[0\]\[5\]"):
            again.load_state_dict(file)
        opt.param_groups[0]["params"].append(nn.Parameter(torch.ones(2, dtype=torch.cfloat).conj()))
        with self.assertRaisesRegex(ValueError, "conjugated"):
            opt.step()


class Tags(Evaluated):
    def test_scale(self):
        """As the authors' code: embeddings by columns, the head with momentum, others by rows."""
        m = net()
        opt = optc.torch.Optimizer(m, "scale", lr=0.1)
        self.assertEqual(optc.torch.sorted_by(opt), {
            "wte.weight": "embed", "qkv.weight": "matrix", "proj.weight": "matrix",
            "proj.bias": "rest", "lm_head.weight": "head"})
        want, momentum = {n: p.detach().clone() for n, p in m.named_parameters()}, 0
        for k in range(3):
            grads(m.parameters(), k)
            for n, p in m.named_parameters():
                if p.dim() > 1:
                    g = p.grad
                    if n == "lm_head.weight":
                        g = momentum = 0.9 * momentum + (1 - 0.9) * g
                    size = g.square().mean(int(n != "wte.weight"), keepdim=True).sqrt()
                    want[n] = want[n] - 0.1 * g / size.clamp(min=1e-8)
            opt.step()
        for n, p in m.named_parameters():
            if p.dim() > 1:
                self.assertTrue(torch.allclose(p, want[n], atol=1e-5), n)

    def test_vectors(self):
        """SOAP with precondition_1d gives each vector a basis, as to a matrix of one row."""
        def made(shape, **given):
            params = [torch.nn.Parameter(x)
                      for x in (torch.ones(shape), torch.ones(5), torch.tensor(1.0))]
            return params, optc.torch.SOAP(zip("abc", params), lr=0.1, **given)
        left, one = made((7,), precondition_1d=True, sort=lambda n, p: "rest" if n == "b" else None)
        right, two = made((1, 7), sort=lambda n, p: "matrix" if n == "a" else None)
        self.assertEqual(optc.torch.sorted_by(one), {"a": "vector", "b": "rest", "c": "rest"})
        for k in range(12):                            # the basis turns at step 11
            for params, opt in ((left, one), (right, two)):
                for i, p in enumerate(params):
                    torch.default_generator.manual_seed(10 * k + i)
                    p.grad = torch.randn(p.numel()).reshape(p.shape)
                opt.step()
        self.assertTrue(all(torch.equal(p.flatten(), q.flatten()) for p, q in zip(left, right)))
        self.assertEqual(one.state[left[0]]["R"].numel(), 49)
        self.assertNotIn("R", one.state[left[1]])
        plain = made((7,), sort=lambda n, p: "matrix")[1]
        self.assertEqual(optc.torch.sorted_by(plain)["a"], "rest")
        file = one.state_dict()
        self.assertTrue(file["param_groups"][0]["precondition_1d"])
        again = made((7,), precondition_1d=True)[1]
        again.load_state_dict(file)

    def test_scion(self):
        """The head moves by signs over its inputs; also one that is tied to the embedding, as in
        the authors' run."""
        for tied in (False, True):
            m = net()
            if tied:
                m.lm_head.weight = m.wte.weight
            before = m.lm_head.weight.detach().clone()
            opt = optc.torch.Optimizer(m, "scion", options={"constrained": False}, lr=0.5)
            steps(opt, 1)
            moved = before - m.lm_head.weight.detach()
            self.assertTrue(torch.allclose(moved.abs(), torch.full_like(moved, 0.5 / 4)), tied)
            moved = net().qkv.weight.detach() - m.qkv.weight.detach()
            self.assertGreater(float(moved.abs().std()), 1e-3)

    def test_adam_mini(self):
        """One second moment for each head of a matrix that is split into heads."""
        m = net()
        opt = optc.torch.Optimizer(m, "adam_mini", split={"qkv.weight": 3}, lr=0.1)
        self.assertEqual(optc.torch.sorted_by(opt)["qkv.weight"], "heads")
        w = m.qkv.weight
        before = w.detach().clone()
        grads(m.parameters())
        size = w.grad.view(3, -1).square().mean(1).sqrt().repeat_interleave(16).view_as(w)
        want = before - 0.1 * w.grad / (size + 1e-8)
        opt.step()
        self.assertTrue(torch.allclose(w, want, atol=1e-6))

    def test_answers(self):
        """sort= and a group's `sort` take the words that sorted_by has."""
        def made(m, rule, answer):
            return optc.torch.sorted_by(optc.torch.Optimizer(
                m, rule, sort=lambda n, _: answer if n == "qkv.weight" else None))["qkv.weight"]
        for rule, answer, want in (
                ("muon", "head", "rest"), ("muon", "embed", "rest"), ("muon", "embedding", "rest"),
                ("muon", "matrix", "matrix"), ("muon", "rest", "rest"), ("muon", True, "matrix"),
                ("muon", torch.tensor(False), "rest"), ("muon", None, "matrix"),
                ("scale", "head", "head"), ("scale", "embedding", "embed"),
                ("scale", "embed head", "embed head"), ("scale", False, "rest"),
                ("scion", "head", "head"), ("scion", "rest", "rest"),
                ("adam_mini", "heads", "heads")):
            self.assertEqual(made(net(), rule, answer), want, (rule, answer))
        words = '"matrix" or True, "rest" or False, "embed", "head", or None'
        for answer in ("hedd", "heads", 5, "", [1], "matrix head"):
            with self.assertRaisesRegex(ValueError, "for 'qkv.weight': it must be " + words,
                                        msg=repr(answer)):
                made(net(), "muon", answer)
        with self.assertRaisesRegex(TypeError, "sort= is a function"):
            optc.torch.Muon(net(), sort="head")

    def test_groups(self):
        m = net()
        groups = [{"params": [("a", m.proj.weight), ("b", m.proj.bias)]},
                  {"params": [("c", m.qkv.weight)], "sort": "head"}]
        opt = optc.torch.Optimizer(groups, "scale")
        self.assertEqual(optc.torch.sorted_by(opt)["c"], "head")
        steps(opt, 1)
        self.assertIn("m", opt.state[m.qkv.weight])
        opt.param_groups[1]["sort"] = "rest"           # acts at the next step
        opt.state[m.qkv.weight].clear()
        steps(opt, 1)
        self.assertIn("adamw.m", opt.state[m.qkv.weight])
        opt.param_groups[1]["sort"] = "hedd"
        with self.assertRaisesRegex(ValueError, r'param_groups\[1\]\["sort"\] is \'hedd\':'):
            opt.step()
        opt.param_groups[1]["sort"] = None
        with self.assertRaisesRegex(ValueError, r'param_groups\[2\]\["sort"\] is \'x\''):
            opt.add_param_group({"params": [("d", m.lm_head.weight)], "sort": "x"})
        self.assertEqual(len(opt.param_groups), 2)

    def test_keys_of_others(self):
        """Keys by which other packages choose AdamW for a group say how optc is told that."""
        table, matrix = (nn.Parameter(torch.randn(8, 4)) for _ in range(2))
        for key, said in (("use_muon", False), ("use_muon", True), ("use_fallback", True),
                          ("algorithm", "adamw")):
            chosen = [{"params": [matrix]}, {"params": [table], key: said, "lr": 3e-4}]
            with self.assertRaisesRegex(TypeError, r'param_groups\[1\]\["%s"\].*"sort": ' % key):
                optc.torch.Muon(chosen)
            opt = optc.torch.Muon([matrix], sort=lambda name, p: True)
            with self.assertRaisesRegex(TypeError, key):
                opt.add_param_group(chosen[1])
            self.assertEqual(len(opt.param_groups), 1)
            opt = optc.torch.AdamW(chosen)                             # sorts nothing: as torch
            self.assertEqual(opt.param_groups[1][key], said)

    def test_own_tags(self):
        text = """return optimizer { name = "own", hyper = { lr = 1 }, step = function()
            if tagged "still" then p = p - 0 * g else p = p - lr * g end end }"""
        m = net()
        opt = optc.torch.Optimizer(m, "own", spec=text,
                                   sort=lambda n, _: "still" if n == "proj.bias" else None)
        steps(opt, 1)
        self.assertEqual([torch.equal(a, b) for a, b in zip(m.parameters(), net().parameters())],
                         [False, False, False, True, False])

    def test_without_names(self):
        for rule, warns in (("scion", 1), ("scale", 1), ("adam_mini", 0), ("shampoo", 0)):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                optc.torch.Optimizer(net().parameters(), rule)
            self.assertEqual(sum("they have no names" in str(w.message) for w in said), warns, rule)


class Split(Evaluated):
    def test_stacks(self):
        """A stack of experts is refused: a piece of it would be one row of all of an expert."""
        m = nn.Module()
        m.experts, m.conv = nn.Parameter(torch.randn(4, 6, 8)), nn.Conv2d(6, 12, 3, bias=False)
        for given in (m, list(m.named_parameters())):
            with self.assertRaisesRegex(ValueError, r"split=4 of 'experts': .*\(4, 6, 8\).*24 x 8"):
                optc.torch.Muon(given, split={"experts": 4})
        with self.assertRaisesRegex(ValueError, "split=2 of 'conv.weight'.* pass the module"):
            optc.torch.Muon(list(m.named_parameters()), split={"conv.weight": 2})
        optc.torch.Muon(m, split={"experts": 1})
        opt = optc.torch.Muon([("a", m.conv.weight)])
        with self.assertRaisesRegex(ValueError, "split=2 of 'b'"):
            opt._roles.split = {"b": 2}
            opt.add_param_group({"params": [("b", m.experts)]})
        self.assertEqual(len(opt.param_groups), 1)

    def test_wrong_answers(self):
        """A number that is not whole was cut off; a name that no parameter has had no effect."""
        for n in (2.5, "3", [2]):
            with self.assertRaisesRegex(ValueError, "split= has .* for 'qkv.weight': it must be"):
                optc.torch.Muon(net(), split={"qkv.weight": n})
        with self.assertRaisesRegex(ValueError, r"a parameter of shape \(7, 4\)"):
            optc.torch.Muon(net().parameters(), split=lambda *_: 0.5)
        for given, says in ((net(), "'qkv.wieght' and 1 more, .*; did you mean 'qkv.weight'"),
                            (net().parameters(), "'qkv.wieght' .* has that name: pass a module")):
            with self.assertWarnsRegex(UserWarning, says):
                optc.torch.Muon(given, split={"qkv.wieght": 3, "other": 2, "none": 0})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optc.torch.Muon(net(), split={"qkv.weight": True, "none": 0})

    def test_kernels(self):
        """A kernel is split by its output channels, as the groups of a convolution are."""
        m = nn.ModuleDict({"conv": nn.Conv2d(6, 12, 3, bias=False)})
        parts = [nn.Parameter(x.clone()) for x in m["conv"].weight.detach().chunk(3)]
        whole = optc.torch.Optimizer(m, "muon", split={"conv.weight": 3}, sort=lambda *_: True,
                                     lr=0.1)
        apart = optc.torch.Optimizer(parts, "muon", sort=lambda *_: True, lr=0.1)
        grads(m.parameters())
        for p, g in zip(parts, m["conv"].weight.grad.chunk(3)):
            p.grad = g.clone()
        whole.step(), apart.step()
        self.assertTrue(torch.allclose(m["conv"].weight, torch.cat(parts), atol=1e-6))


if __name__ == "__main__":
    unittest.main()
