"""Evaluation mode: opt.eval() puts averages into the parameters, opt.train() takes them out, and a
step in between is refused."""
import collections
import copy
import io
import pickle
import unittest

import torch

import optc
import optc.torch
from case import Evaluated, grads, lists

OWN = """return optimizer {
  name = "own", hyper = { lr = { 0.1, min = 0 } }, state = { avg = copy(p), on = zeros "tensor" },
  step = function() p = p - lr * g avg = lerp(avg, p, 0.5) end,
  to_eval = function() p, avg, on = where(eq(on, 0), avg, p), where(eq(on, 0), p, avg), 1 end,
  to_train = function() p, avg, on = where(gt(on, 0), avg, p), where(gt(on, 0), p, avg), 0 end }"""
RULES = [("schedulefree_sgd", {}), ("schedulefree_adamw", {}),
         ("schedulefree_radam", {"betas": (0.9, 0.9)}), ("gpa_adamw", {"lr": 0.1}),
         ("amuse", {"warmup_steps": 2, "lr_1d": 0.1}), ("splus", {}), ("sgd+ema_nesterov", {}),
         ("schedulefree_sgd+ema(0.9)", {}), ("schedulefree_sgd+sam", {}), ("own", {"spec": OWN})]


def make(params, rule, given):
    return optc.torch.Optimizer(
        [{"params": [("a", params[0])]}, {"params": [("b", params[1])], "lr": 0.2}], rule, **given)


def values(params):
    return [p.detach().clone() for p in params]


class Modes(Evaluated):
    def refused(self, opt, params, call=None):
        was = values(params)
        with self.assertRaisesRegex(RuntimeError, r"in evaluation mode: .*call\s+opt.train\(\)"):
            (call or opt.step)()
        self.assertTrue(all(map(torch.equal, was, params)))

    def test_every_rule(self):
        """Steps need no train(). A step between eval() and train() is refused and changes nothing,
        and steps after train() are those of a run that was never evaluated. Both calls may come
        twice."""
        for rule, given in RULES:
            with self.subTest(rule):
                p, q = lists(), lists()
                opt, plain = make(p, rule, given), make(q, rule, given)
                opt.train()                            # without eval(): nothing changes
                for t in range(9):
                    grads(p, t), grads(q, t)
                    if t in (6, 7):
                        was = values(p)
                        opt.eval()
                        averages = values(p)
                        self.assertFalse(all(map(torch.equal, was, averages)))
                        self.refused(opt, p)
                        self.refused(opt, p,
                                     lambda: opt.step(lambda: self.fail("the closure was called")))
                        if "perturb" in opt.entries():
                            self.refused(opt, p, opt.perturb)
                        opt.run("to_eval")
                        self.assertTrue(all(map(torch.equal, averages, p)))
                        opt.train()
                        opt.run("to_train")
                        for x, y in zip(was, p):
                            torch.testing.assert_close(x, y.detach(), rtol=1e-5, atol=1e-6)
                    opt.step(), plain.step()
                for x, y in zip(p, q):
                    torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)

    def test_the_mode_is_saved(self):
        for rule, given in RULES:
            with self.subTest(rule):
                p = lists()
                opt = make(p, rule, given)
                grads(p), opt.step(), opt.eval()
                file = io.BytesIO()
                torch.save(opt.state_dict(), file)
                file.seek(0)
                loaded = make(q := [x.detach().clone().requires_grad_() for x in p], rule, given)
                again = [copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))]
                again = [(o, [x for g in o.param_groups for x in g["params"]]) for o in again]
                if rule != "own":                      # no state of this name says it
                    loaded.load_state_dict(torch.load(file))
                    again.append((loaded, q))
                for o, params in again:
                    grads(params)
                    self.refused(o, params)
                opt.train()
                for o, params in again:
                    o.train()
                    for x, y in zip(params, p):
                        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
                    grads(params)
                    o.step()
                    o.eval()
                    o.load_state_dict(opt.state_dict())                # saved in training mode
                    grads(params)
                    o.step()

    def test_assigned_states(self):
        """Entries that are assigned by hand bring their mode, as files do."""
        for rule, given in RULES[:-1:3]:
            for how in ("state", "update", "setattr"):
                with self.subTest(rule, how=how):
                    p = lists()
                    opt = make(p, rule, given)
                    grads(p), opt.step(), opt.eval()
                    q = [x.detach().clone().requires_grad_() for x in p]
                    other, entries = make(q, rule, given), copy.deepcopy(list(opt.state.values()))
                    if how != "setattr":               # bound: it has taken a step
                        grads(q), other.step()
                    entries = dict(zip(q, entries))
                    if how == "state":
                        for x, own in entries.items():
                            other.state[x] = own
                    elif how == "update":
                        for x, own in entries.items():
                            other.state[x].update(own)
                    else:
                        other.state = collections.defaultdict(dict, entries)
                    for x, y in zip(q, p):
                        x.data.copy_(y.data)
                    grads(p), grads(q)
                    self.refused(other, q)
                    other.train(), opt.train()
                    other.step(), opt.step()
                    for x, y in zip(q, p):
                        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)

    def test_frozen(self):
        """A parameter that is frozen, before eval() or after it, changes modes with the others,
        also when tensors are bound again; and so does one that is thawed before train()."""
        for rule, given in (*RULES[::3], ("sgd+ema(0.5)", {})):
            for after, thawed in ((False, False), (True, False), (True, True)):
                with self.subTest(rule, after=after, thawed=thawed):
                    p, q = lists(), lists()
                    opt, plain = make(p, rule, given), make(q, rule, given)
                    for t in range(3):
                        grads(p, t), grads(q, t)
                        opt.step(), plain.step()
                    was = values(p)
                    plain.eval()
                    after and opt.eval()
                    p[0].requires_grad_(False), opt.zero_grad(), plain.zero_grad()
                    opt.add_param_group({"params": [("c", torch.ones(2, requires_grad=True))]})
                    opt.run("to_eval")                 # binds again
                    self.assertTrue(all(map(torch.equal, p, q)))
                    if thawed:
                        p[0].requires_grad_(True)
                    opt.train(), plain.train()
                    for x, y in zip(was, p):
                        torch.testing.assert_close(x, y.detach(), rtol=1e-5, atol=1e-6)
                    p[0].requires_grad_(True)
                    grads(p, 5), grads(q, 5)
                    opt.step(), plain.step()
                    for x, y in zip(p, q):
                        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)

    def test_half_modes(self):
        """A file in which one parameter of two has its average, as after a parameter was added in
        evaluation mode."""
        p = lists(shapes=((4, 3), (5,), (2,)))
        opt = make(p[:2], "schedulefree_sgd", {})
        grads(p), opt.step(), opt.eval()
        opt.add_param_group({"params": [("c", p[2])]})
        self.refused(opt, p)
        saved = copy.deepcopy(opt.state_dict())
        saved["state"][0]["evaluated"].fill_(0)
        other = make(q := lists(), "schedulefree_sgd", {})
        other.add_param_group({"params": [("c", q[0].detach()[0, :2].clone().requires_grad_())]})
        other.load_state_dict(saved)
        grads(q)
        self.refused(other, q)
        first = q[0].detach().clone()
        other.train()
        self.assertTrue(torch.equal(first, q[0]))
        other.step()
        self.assertFalse(torch.equal(first, q[0]))
        opt.train()
        grads(p), opt.step()

    def test_in_backward_and_with_a_scaler(self):
        p = torch.ones(3, requires_grad=True)
        opt = optc.torch.Optimizer([p], "sgd+ema_nesterov", release_grads=True)
        (p * p).sum().backward()
        opt.eval()
        self.refused(opt, [p], (p * p).sum().backward)
        q = torch.ones(3, requires_grad=True)
        opt, scaler = optc.torch.Optimizer([q], "schedulefree_sgd"), optc.torch.GradScaler(
            "cpu", init_scale=2.0)
        q.grad = torch.ones(3)
        opt.step(), opt.eval()
        scaler.scale(torch.ones(1))
        self.refused(opt, [q], lambda: scaler.step(opt))

    def test_value_out_of_range(self):
        """Without gradients a step does nothing then, as torch's; eval() is refused."""
        p = lists()
        opt = make(p, "schedulefree_adamw", {})
        for t in range(2):
            grads(p, t)
            opt.step()
        opt.zero_grad()
        was, opt.param_groups[1]["lr"] = values(p), -1.0
        opt.step()
        with self.assertRaisesRegex(optc.RangeError, r'param_groups\[1\]\["lr"\] is -1'):
            opt.eval()
        self.assertTrue(all(map(torch.equal, was, p)))
        opt.param_groups[1]["lr"] = 0.2
        opt.eval()
        self.assertFalse(any(map(torch.equal, was, p)))

    def test_ema_is_exempt(self):
        """Under ema a step puts the weights back."""
        p, q = lists(), lists()
        opt, plain = (make(x, "sgd+ema(0.5)", {}) for x in (p, q))
        for t in range(3):
            grads(p, t), grads(q, t)
            opt.step(), plain.step()
            opt.eval()
        opt = copy.deepcopy(opt)
        params = [x for g in opt.param_groups for x in g["params"]]
        grads(params), grads(q)
        opt.step(), plain.step()
        self.assertTrue(all(map(torch.equal, params, q)))


if __name__ == "__main__":
    unittest.main()
