"""States that are saved, loaded, copied and shown."""
import copy
import io
import pickle

import torch
from torch.optim import lr_scheduler as lrs

import optc.torch
from case import Case, grads, lists, model, train


class Kept(Case):
    def test_both_ways(self):
        """A run that torch's optimizer began continues with ours, and the other way round: every
        rule of both."""
        from optc.torch import _rules
        # test_contracts: torch's takes matrices alone, in bf16
        for spec in _rules.TORCH.keys() - {"muon"}:
            kwargs = {"momentum": 0.9} if spec in ("sgd", "rmsprop") else {}
            kwargs["lr"] = 0.01
            theirs, ours = _rules.torch_class(spec), getattr(optc.torch, _rules.CLASSES[spec])
            for first, second in ((theirs, ours), (ours, theirs)):
                a = model()
                oa = first(a.parameters(), **kwargs)
                train(a, oa, 5)
                b = copy.deepcopy(a)
                ob = second(b.parameters(), lr=0.5)
                file = io.BytesIO()
                torch.save(oa.state_dict(), file)
                file.seek(0)
                ob.load_state_dict(state_dict=torch.load(file))
                self.close(train(a, oa, 5), train(b, ob, 5))

    def test_types_stay(self):
        a = model(dtype=torch.bfloat16)
        opt = optc.torch.AdamW(a.parameters())
        grads(a.parameters()), opt.step()
        saved = copy.deepcopy(opt.state_dict())
        other = optc.torch.AdamW(a.parameters())
        other.load_state_dict(saved)
        grads(a.parameters()), other.step()
        for s in other.state.values():
            self.assertEqual(s["exp_avg"].dtype, torch.float32)
        self.assertEqual(saved["state"][0]["step"].item(), 1)

    def test_copies(self):
        b = model()
        opt = optc.torch.Optimizer(list(b.named_parameters()), "adamw+ema(0.5)", lr=0.02)
        s = lrs.StepLR(opt, 2, 0.5)
        train(b, opt, 3, s)
        for make in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            c, other = make((b, opt))
            e, third = copy.deepcopy((b, opt))
            self.assertEqual(train(c, other, 3), train(e, third, 3))
            self.assertEqual(other.param_groups[0]["param_names"][0], "0.weight")
        train(b, opt, 3)
        self.assertEqual([p.tolist() for p in b.parameters()], [p.tolist() for p in c.parameters()])

    def test_live(self):
        p = lists()
        opt = optc.torch.AdamW(p)
        grads(p), opt.step()
        m = opt.state[p[0]]["exp_avg"]
        grads(p, 1), opt.step()
        self.assertIs(opt.state[p[0]]["exp_avg"], m)
        m.zero_()
        opt.state[p[0]]["exp_avg_sq"].fill_(1.0)
        p[0].grad = torch.zeros(4, 3)
        before = p[0].detach().clone()
        opt.param_groups[0]["weight_decay"] = 0.0
        opt.step()
        self.assertTrue(torch.equal(before, p[0]))
        del opt
        self.assertEqual(m.abs().sum().item(), 0)      # what is held outlives the optimizer

    def test_empty_first_step(self):
        """As a distributed checkpoint does it to make states."""
        for spec in ("adamw", "soap", "adafactor", "sgd"):
            torch.default_generator.manual_seed(0)
            p = [torch.randn(4, 3).requires_grad_()]
            q = [p[0].detach().clone().requires_grad_()]
            opt, other = optc.torch.Optimizer(list(zip("w", p)),
                                              spec), optc.torch.Optimizer(list(zip("w", q)), spec)
            lr = opt.param_groups[0]["lr"]
            opt.param_groups[0]["lr"] = 0.0
            p[0].grad = torch.zeros(4, 3)
            opt.step(closure=None)
            opt.param_groups[0]["lr"] = lr
            self.assertIn("step", opt.state[p[0]])
            for t in range(3):
                grads(p, t), grads(q, t)
                opt.step(), other.step()
            torch.testing.assert_close(p[0], q[0], rtol=1e-4, atol=1e-5)

    def test_wrong_file(self):
        p = lists()
        opt = optc.torch.AdamW(p)
        grads(p), opt.step()
        other = optc.torch.AdamW(lists(shapes=((4, 4), (5,))))
        with self.assertRaisesRegex(ValueError, r"exp_avg.*\(4, 4\).*\(4, 3\)"):
            other.load_state_dict(opt.state_dict())
        with self.assertRaisesRegex(ValueError, "parameter groups"):
            optc.torch.AdamW([{"params": x} for x in lists()]).load_state_dict(opt.state_dict())
