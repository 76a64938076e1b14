"""The fuzzer of torch.optim's contract, and tests of faults that it or torch's tests found."""
import os
import unittest
from unittest import mock

import torch
from torch.optim import lr_scheduler as lrs

import fuzz_contracts
import optc.torch
from case import Case, grads, lists


class Fuzz(unittest.TestCase):
    def test_no_difference(self):
        steps = 50000 if os.environ.get("OPTC_ALL") else 2000
        with fuzz_contracts.evaluator():
            ran, failures = fuzz_contracts.fuzz(steps)
        self.assertFalse(failures, "\n".join(failures))
        self.assertGreaterEqual(ran, steps)

    def test_rules_and_edits(self):
        self.assertGreaterEqual(len(fuzz_contracts.EDITS), 60)
        self.assertEqual(len(fuzz_contracts.RULES), 12)
        played = {edit for seed in range(80) for edit, _ in fuzz_contracts.edits_of(seed)}
        self.assertEqual(played, set(fuzz_contracts.EDITS))

    def test_finds_and_shortens(self):
        """A fault of a step is found, and the sequence that shows it is short."""
        step = optc.torch.Optimizer._step

        def wrong(opt, closure=None):
            found = step(opt, closure)
            if opt.param_groups[0].get("lr_scale") and opt.param_groups[0]["params"]:
                opt.param_groups[0]["params"][0].data.add_(1)
            return found
        with fuzz_contracts.evaluator(), mock.patch.object(optc.torch.Optimizer, "_step", wrong):
            _, failures = fuzz_contracts.fuzz(2000)
        self.assertEqual(len(failures), 1)
        self.assertIn("foreign_key", failures[0])
        self.assertLessEqual(len(failures[0].splitlines()[-1].split(",")), 3)


class Found(Case):
    def test_range_without_gradients(self):
        """torch reads no group without gradients: a value out of range is refused by the first step
        that needs it."""
        p = lists()
        opt = optc.torch.SGD(p, lr=0.1, momentum=0.5)
        lrs.CyclicLR(opt, 0.1, 1.0, base_momentum=2.0, max_momentum=3.0)
        opt.step()
        before = [x.detach().clone() for x in p]
        grads(p)
        with self.assertRaisesRegex(optc.RangeError, r'param_groups\[0\]\["momentum"\] is 3'):
            opt.step()
        self.assertTrue(all(map(torch.equal, before, p)))
        opt.param_groups[0]["momentum"] = 0.5
        opt.step()
        self.assertFalse(any(map(torch.equal, before, p)))

    def test_states_of_removed_parameters(self):
        """A file has no entry for a parameter that was removed from the groups."""
        p = lists()
        opt = optc.torch.SGD(p, lr=0.1)
        grads(p), opt.step()
        gone = opt.param_groups[0]["params"].pop()
        self.assertEqual(list(opt.state_dict()["state"]), [0])
        self.assertIn(gone, opt.state)


if __name__ == "__main__":
    unittest.main()
