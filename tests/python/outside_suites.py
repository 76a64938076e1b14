"""Runs test suites of other projects with optc.torch's classes in place of theirs:

    python3 tests/python/outside_suites.py SUITE CHECKOUT [--update] [pytest's arguments]

SUITE     torch, timm, schedulefree, pytorch_optimizer or torchao
CHECKOUT  a checkout of that project at the version that is installed; torch's suite is in no wheel
--update  writes what failed to tests/python/outside/SUITE.txt; reasons that are there stay, others
          are "?"

The file has one line for each expected failure: the test, " | " and the reason. The exit status is
1 if a test fails that it does not name, or if one that it names passes. A test that fails by
differentiable=True runs again without these inputs, so that it cannot hide another failure. Needs
pytest, the project itself, and what its suite imports.
"""
import os
import sys

import pytest
import torch
from _pytest.runner import runtestprotocol

import optc.torch
from optc.torch import _rules

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outside")
REFUSED = "differentiable=True"                        # the start of optc's message


def torch_suite(checkout):
    """Every class that torch has: in torch.optim and in the table of inputs."""
    from torch.testing._internal import common_optimizers as table
    ours = {c: getattr(optc.torch, c) for c in _rules.CLASSES.values()}
    for info in table.optim_db:
        info.optim_cls = ours.get(info.optim_cls.__name__, info.optim_cls)
    for name, kind in ours.items():
        setattr(torch.optim, name, kind)
    inputs = table._get_optim_inputs_including_global_cliquey_kwargs

    def plain(*args, skip=(), **given):
        return inputs(*args, skip=(*skip, "differentiable") if Runner.plain else skip, **given)
    table._get_optim_inputs_including_global_cliquey_kwargs = plain
    sys.path.insert(0, os.path.join(checkout, "test"))
    return [os.path.join(checkout, "test", "test_optim.py")]


def timm_suite(checkout):
    """Every rule of timm's registry whose class optc has under the same name."""
    import dataclasses

    from timm.optim import _optim_factory
    known = _names()
    registry = _optim_factory.default_registry._optimizers
    for name, info in registry.items():
        kind = info.opt_class
        kind = kind if isinstance(kind, str) else kind.__name__
        found = known.get(kind.rsplit(".", 1)[-1].lower())
        if found:
            registry[name] = dataclasses.replace(info, opt_class=found)
    return [os.path.join(checkout, "tests", "test_optim.py")]


def schedulefree_suite(checkout):
    """The three classes; the tests compare them with the authors' reference, within 1e-5 and 1e-8:
    in f64, because f32 rounds more than the second. They ask for a GPU: without one they run on the
    CPU."""
    import schedulefree
    for name in ("SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree"):
        setattr(schedulefree, name, getattr(optc.torch, name))
    torch.set_default_dtype(torch.float64)
    if not torch.cuda.is_available():
        torch.Tensor.cuda = lambda self, *args, **given: self
    return [os.path.join(checkout, "schedulefree", "test_schedulefree.py")]


def pytorch_optimizer_suite(checkout):
    """The problems that each rule must solve, for every rule that optc has under the same name."""
    from pytorch_optimizer import optimizer

    def replace():                                     # collecting tests makes optimizers of theirs
        known, theirs = _names(), optimizer.OPTIMIZERS
        theirs.update({name: known[name] for name in theirs if name in known})
    Runner.late = staticmethod(replace)
    sys.path.insert(0, checkout)
    file = os.path.join(checkout, "tests", "test_optimizers.py")
    return [file + "::TestOptimizerTraining::test_training"]


def torchao_suite(checkout):
    """Adam and AdamW with states in 8 bits, 4 bits and fp8. optc has no states of 4 bits: these
    tests run with 8."""
    from torchao import optim
    for kind in ("Adam", "AdamW"):
        for ending, state in (("8bit", "q8"), ("4bit", "q8"), ("Fp8", "e4m3")):
            def made(params, lr=1e-3, _kind=kind, _state=state, block_size=256, **given):
                return getattr(optc.torch, _kind)(params, lr, types={"state": _state}, **given)
            setattr(optim, kind + ending, made)
    file = os.path.join(checkout, "test", "test_low_bit_optim.py")
    return [file, "-k", "smoke or default_dtype or param_groups"]


def _names():
    from optc.torch import _rule_classes
    return {n.lower(): getattr(optc.torch, n) for n in _rule_classes.names()}


SUITES = {"torch": torch_suite, "timm": timm_suite, "schedulefree": schedulefree_suite,
          "pytorch_optimizer": pytorch_optimizer_suite, "torchao": torchao_suite}


class Runner:
    """Collects what failed: {test: its last line}."""
    plain, late = False, None

    def __init__(self):
        self.failed, self.passed, self.ran = {}, 0, set()

    def pytest_collection_finish(self, session):
        self.late and self.late()

    def pytest_runtest_protocol(self, item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        why = self.reason(reports)
        if why and REFUSED in why:
            Runner.plain = True
            again = self.reason(runtestprotocol(item, nextitem=nextitem, log=False))
            Runner.plain = False
            if again and REFUSED not in again:
                why, reports = again, reports
        name = item.nodeid.split("::", 1)[1]
        if why:
            self.failed[name] = why
        if not any(r.skipped for r in reports):
            self.ran.add(name)
        for r in reports:
            item.ihook.pytest_runtest_logreport(report=r)
        return True

    def reason(self, reports):
        for r in reports:
            if r.failed:
                crash = getattr(r.longrepr, "reprcrash", None)
                return (crash.message if crash else str(r.longrepr)).strip() or "failed"
        return None


def expected(path):
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        return dict(line.rstrip("\n").split(" | ", 1) for line in f if line.strip())


def main(suite, checkout, *more):
    update = "--update" in more
    more = [m for m in more if m != "--update"]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    runner, path = Runner(), os.path.join(HERE, suite + ".txt")
    target = SUITES[suite](os.path.abspath(checkout))
    given = ["-q", "--no-header", "-rN", "--tb=no", "--import-mode=importlib"]
    # theirs ask for plugins
    given += ["-c", os.devnull, "--rootdir=/"] if suite != "torch" else []
    given += ["-p", "no:cacheprovider", "-p", "no:warnings"]       # torch's tests count warnings
    status = pytest.main([*given, *target, *more], plugins=[runner])
    if status not in (0, 1):
        return int(status)
    known = expected(path)
    new = {n: w for n, w in runner.failed.items() if n not in known}
    gone = [n for n in known if n in runner.ran and n not in runner.failed]
    if not more:
        gone += [n for n in known if n not in runner.ran]
    print("\n%s: %d of %d tests pass, %d fail as expected" % (
        suite, len(runner.ran) - len(runner.failed), len(runner.ran),
        len(runner.failed) - len(new)))
    for name, why in new.items():
        print("FAILS: %s: %s" % (name, why.splitlines()[0][:300]))
    for name in gone:
        print("PASSES, but is expected to fail: %s (%s)" % (name, known[name]))
    if update:
        os.makedirs(HERE, exist_ok=True)
        with open(path, "w") as f:
            for name in sorted(runner.failed):
                refused = REFUSED in runner.failed[name]
                why = "differentiable=True is refused by design" if refused else "?"
                f.write("%s | %s\n" % (name, known.get(name, why)))
    return int(bool(new or gone))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in SUITES:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
