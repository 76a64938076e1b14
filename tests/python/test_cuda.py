"""optc.torch on a GPU: the CPU's bits, graphs, streams, devices, memory. Run by
tests/gpu/python.sh."""
import copy
import unittest

import torch

import optc.torch
from test_training import train as train_gpt

SHAPES = ((64, 48), (48,), (3, 5, 7), (), (1000,))


def parameters(device, dtype=torch.float32, shapes=SHAPES):
    torch.manual_seed(0)
    return [torch.randn(s, dtype=dtype).to(device).requires_grad_() for s in shapes]


def grads(params, seed, keep=True):
    torch.manual_seed(seed)
    for p in params:
        g = torch.randn(p.shape, dtype=torch.float32).to(p.dtype).to(p.device)
        if keep and p.grad is not None:
            p.grad.copy_(g)
        else:
            p.grad = g


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Cuda(unittest.TestCase):
    def both(self, spec, dtype=torch.float32, keep=False, steps=4, **given):
        a, b = parameters("cpu", dtype), parameters("cuda", dtype)
        oa, ob = (optc.torch.Optimizer(list(zip("abcde", x)), spec, **given) for x in (a, b))
        for t in range(steps):
            grads(a, t, keep), grads(b, t, keep)
            oa.step(), ob.step()
        for p, q in zip(a, b):
            self.assertTrue(torch.equal(p, q.cpu()), (spec, tuple(p.shape)))
            for key, value in oa.state[p].items():
                self.assertTrue(torch.equal(value, ob.state[q][key].cpu()), (spec, key))
        return oa, ob

    def test_bits(self):
        for spec in ("adamw", "sgd", "lion", "adafactor", "lamb", "adamw+clip(1)+ema(0.9)",
                     "nadam"):
            self.both(spec)
        self.both("adamw", torch.bfloat16)
        self.both("adamw", torch.float16, types={"state": "bf16"})
        self.both("adamw", keep=True)
        self.both("adamw", maximize=True)

    def test_states(self):
        a, b = self.both("adamw")
        p = b.param_groups[0]["params"][0]
        self.assertEqual(b.state[p]["exp_avg"].device, p.device)
        fresh = parameters("cuda")
        other = torch.optim.AdamW(fresh)
        other.load_state_dict(
            copy.deepcopy(b.state_dict()) | {"param_groups": other.state_dict()["param_groups"]})
        again = optc.torch.AdamW(fresh)
        # the CPU's
        again.load_state_dict(a.state_dict() | {"param_groups": again.state_dict()["param_groups"]})
        grads(fresh, 9), again.step()
        c, d = copy.deepcopy((b.param_groups[0]["params"], b))
        grads(c, 9), d.step()
        self.assertEqual(d.state[c[0]]["step"].item(), 5)

    def test_moves(self):
        net = torch.nn.Linear(8, 8)
        opt = optc.torch.AdamW(net.parameters(), lr=0.1)
        for device in ("cpu", "cuda", "cpu"):
            net.to(device)
            opt.zero_grad()
            net(torch.ones(2, 8, device=device)).sum().backward()
            opt.step()
        self.assertEqual(opt.state[net.weight]["step"].item(), 3)
        self.assertEqual(opt.state[net.weight]["exp_avg"].device.type, "cpu")

    def test_one_clip(self):
        """The CPU and the GPU share one norm, which nobody sets."""
        a = [torch.ones(n, device=d, requires_grad=True) for n, d in ((3, "cpu"), (5, "cuda"))]
        b = [p.detach().clone().requires_grad_() for p in a]
        ours, theirs = optc.torch.SGD(a, lr=1.0, with_="clip(0.5)"), torch.optim.SGD(b, lr=1.0)
        for t in range(3):
            grads(a, t), grads(b, t)
            norm = sum(p.grad.double().square().sum().cpu() for p in b).sqrt().item()
            for p in b:
                p.grad.mul_(min(1.0, 0.5 / (norm + 1e-6)))
            ours.step(), theirs.step()
            self.assertAlmostEqual(ours.value("clip.grad_norm"), norm, places=4)
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_several(self):
        """The CPU and the GPU in one optimizer, each to its bits."""
        a, b = parameters("cpu"), parameters("cuda")
        opt = optc.torch.AdamW(a + b)
        grads(a, 0), grads(b, 0)
        opt.step()
        for p, q in zip(a, b):
            self.assertTrue(torch.equal(p, q.cpu()))
        n = torch.cuda.device_count()
        if n > 1:
            c = parameters("cuda:%d" % (n - 1))
            grads(c, 0)
            optc.torch.AdamW(c).step()
            self.assertTrue(torch.equal(c[0].cpu(), b[0].cpu()))
            self.assertEqual(torch.cuda.current_device(), 0)

    def test_streams(self):
        """What is started in a stream is seen in it."""
        b = parameters("cuda")
        opt = optc.torch.SGD(b, lr=1.0)
        grads(b, 0), opt.step()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        big = torch.randn(4096, 4096, device="cuda")
        with torch.cuda.stream(side):
            for _ in range(8):
                big = big @ big * 1e-3                 # the step has to wait for this
            for p in b:
                p.grad.fill_(1.0)
            before = [p.detach().clone() for p in b]
            opt.step()
            after = [p.detach().clone() for p in b]
        torch.cuda.current_stream().wait_stream(side)
        for p, q in zip(before, after):
            self.assertTrue(torch.equal(p - 1, q))

    def test_captured_types(self):
        """f32 and bf16 parameters with one norm in one graph."""
        def make():
            return [p for t in (torch.float32, torch.bfloat16) for p in parameters("cuda", t)]
        a, b = make(), make()
        oa, ob = (optc.torch.Optimizer(x, "adamw+clip(0.5)+skip", lr=0.1) for x in (a, b))
        for params, opt in ((a, oa), (b, ob)):
            for t in range(2):
                grads(params, t), opt.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ob.step()
        for t in range(2, 6):
            grads(a, t)
            for p, q in zip(a, b):
                q.grad.copy_(p.grad)
            oa.step(), graph.replay()
        torch.cuda.synchronize()
        norm = sum(p.grad.double().square().sum() for p in b).sqrt().item()
        self.assertAlmostEqual(ob.value("clip.grad_norm"), norm, delta=1e-6 * norm)
        for p, q in zip(a, b):
            self.assertTrue(torch.equal(p, q))

    def captured(self, spec, **given):
        a, b = parameters("cuda"), parameters("cuda")
        oa, ob = optc.torch.Optimizer(a, spec, **given), optc.torch.Optimizer(b, spec, **given)
        for t in range(2):
            for params, opt in ((a, oa), (b, ob)):
                grads(params, t), opt.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ob.step()
        for t in range(2, 6):
            if t == 4:
                for opt in (oa, ob):
                    opt.param_groups[0]["lr"] *= 0.5
                ob.push()
            grads(a, t), grads(b, t)
            oa.step(), graph.replay()
        torch.cuda.synchronize()
        for p, q in zip(a, b):
            self.assertTrue(torch.equal(p, q), spec)
        one = ob.state_dict()["state"][0]["step"].item()
        self.assertEqual(one, 6.0)

    def test_graph(self):
        self.captured("adamw")
        self.captured("adamw+clip(1)")
        self.captured("lamb")

    def test_graph_reads_a_tensor(self):
        """A rate that is a tensor on the device: replays see what it holds."""
        a, b = parameters("cuda"), parameters("cuda")
        lr = torch.tensor(0.1, device="cuda")
        oa, ob = optc.torch.AdamW(a, lr=0.1), optc.torch.AdamW(b, lr=lr, capturable=True)
        for t in range(2):
            for params, opt in ((a, oa), (b, ob)):
                grads(params, t), opt.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ob.step()
        for t in range(2, 6):
            lr.fill_(0.1 / t)
            oa.param_groups[0]["lr"] = lr.item()
            grads(a, t), grads(b, t)
            oa.step(), graph.replay()
        torch.cuda.synchronize()
        for p, q in zip(a, b):
            self.assertTrue(torch.equal(p, q))

    def test_graph_of_a_loop(self):
        """Forward, backward and step in one graph; gradients stay where they were."""
        torch.manual_seed(0)
        nets = [torch.nn.Linear(16, 16).cuda() for _ in range(2)]
        nets[1].load_state_dict(nets[0].state_dict())
        opts = [optc.torch.AdamW(n.parameters(), lr=0.01) for n in nets]
        x = torch.randn(4, 16, device="cuda")

        def once(net, opt):
            opt.zero_grad(set_to_none=False)
            net(x).square().mean().backward()
            opt.step()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                once(nets[1], opts[1])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once(nets[1], opts[1])
        for _ in range(5):
            graph.replay()
        for _ in range(8):
            once(nets[0], opts[0])
        torch.testing.assert_close(nets[0].weight, nets[1].weight, rtol=1e-5, atol=1e-6)

    def test_graph_allocates_gradients(self):
        """torch's usual recipe, zero_grad(set_to_none=True): gradients lie in the graph's own
        memory. Two graphs of two batches, and steps outside of them, in turns."""
        torch.manual_seed(0)
        for spec, given in (("adamw", {}), ("adamw+clip(1)", {}), ("muon", {"adamw_lr": 0.01})):
            nets = [
                torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.Linear(24, 16)).cuda()
                for _ in range(2)
            ]
            nets[1].load_state_dict(nets[0].state_dict())
            opts = [optc.torch.Optimizer(n, spec, lr=0.01, **given) for n in nets]
            batches = [torch.randn(n, 16, device="cuda") for n in (4, 7)]

            def once(k, x):
                opts[k].zero_grad()
                nets[k](x).square().mean().backward()
                opts[k].step()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    once(1, batches[0])
            torch.cuda.current_stream().wait_stream(side)
            graphs = []
            for x in batches:
                opts[1].zero_grad()
                graphs.append(torch.cuda.CUDAGraph())
                with torch.cuda.graph(graphs[-1]):
                    once(1, x)
            for k in (0, 1, 1, -1, 0, -1, 1):
                graphs[k].replay() if k >= 0 else once(1, batches[0])
            for k in (0, 0, 0, 1, 1, 0, 0, 0, 1):
                once(0, batches[k])
            torch.cuda.synchronize()
            for p, q in zip(nets[0].parameters(), nets[1].parameters()):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
            self.assertEqual(opts[1].state_dict()["state"][0]["step"].item(), 9)

    def test_not_in_a_capture(self):
        b = parameters("cuda")
        opt = optc.torch.AdamW(b)
        grads(b, 0)
        torch.cuda.synchronize()
        with self.assertRaisesRegex(RuntimeError, "one step before capturing"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                opt.step()
        torch.cuda.synchronize()
        opt.step()

    def scaled(self, scaler, bad, spec="adamw+clip(1)", types=(torch.float32,)):
        """One of six steps has gradients that are not finite: it is left out, and the scale goes
        down."""
        a, b = ([p for t in types for p in parameters("cuda", t)] for _ in range(2))
        other, opt = (optc.torch.Optimizer(x, spec, lr=0.1) for x in (a, b))
        self.assertTrue(opt._step_supports_amp_scaling)
        for t in range(6):
            other.zero_grad(), opt.zero_grad()
            sum((q * q).sum() for q in a).backward()
            scaler.scale(sum((q * q).sum() * (bad if t == 2 else 1.0) for q in b)).backward()
            scaler.step(opt), scaler.update()
            if t != 2:
                other.step()
        self.assertEqual(scaler.get_scale(), 2.0)
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        self.assertEqual(opt.state_dict()["state"][0]["step"].item(), 5)

    def test_scaler(self):
        """torch's protocol: the step reads found_inf and divides by the scale, and the host does
        not wait."""
        self.scaled(torch.amp.GradScaler("cuda", init_scale=4.0), float("inf"))

    def test_own_scaler(self):
        self.scaled(optc.torch.GradScaler("cuda", init_scale=4.0), float("nan"))

    def test_scaler_of_products(self):
        """A rule with products: the host does not wait either, if the driver has conditional
        nodes."""
        for kind in (torch.amp.GradScaler, optc.torch.GradScaler):
            self.scaled(kind("cuda", init_scale=4.0), float("inf"), "muon")
        self.scaled(torch.amp.GradScaler("cuda", init_scale=4.0), float("nan"), "splus")

    def test_own_scaler_of_several(self):
        for spec in ("adamw", "adamw+clip(1)"):
            self.scaled(optc.torch.GradScaler("cuda", init_scale=4.0), float("nan"), spec,
                        (torch.float32, torch.float64))

    def test_guard_in_a_graph(self):
        """found_inf is read anew at every replay, of rules with products too."""
        for spec in ("adamw", "muon"):
            b = parameters("cuda")
            opt = optc.torch.Optimizer(b, spec, lr=0.1)
            opt.found_inf = torch.zeros((), device="cuda")
            for t in range(2):
                grads(b, t), opt.step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                opt.step()
            for t in range(4):
                before = [p.detach().clone() for p in b]
                opt.found_inf.fill_(float(t % 2))
                graph.replay()
                torch.cuda.synchronize()
                same = [torch.equal(p, q) for p, q in zip(before, b)]
                self.assertEqual(all(same) if t % 2 else any(same), bool(t % 2), (spec, t))
            self.assertEqual(opt.state_dict()["state"][0]["step"].item(), 4)

    def replayed(self, spec, **given):
        """An optimizer whose step was captured, and the graph."""
        b = [torch.zeros(1000, device="cuda", requires_grad=True)]
        b[0].grad = torch.ones_like(b[0])
        opt = optc.torch.Optimizer(b, **({"spec": spec} if "{" in spec else {"rule": spec}),
                                   **given)
        if "k =" in spec:
            opt.set_scalar("k", 1.0)
        opt.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            opt.step()
        torch.cuda._sleep(40_000_000)                  # replays have to wait for this
        return b[0], opt, graph

    def test_read_behind_replays(self):
        """Nobody synchronizes: what the host reads is read behind the replays, in their stream."""
        _, opt, graph = self.replayed("adamw")
        for _ in range(5):
            graph.replay()
        self.assertEqual(opt.state_dict()["state"][0]["step"].item(), 6)
        p, opt, graph = self.replayed("sgd+clip(1)", lr=0.1)
        p.grad.fill_(2.0)
        graph.replay()
        self.assertAlmostEqual(opt.value("clip.grad_norm"), 2 * 1000 ** 0.5, places=3)

    def test_written_before_replays(self):
        """A number that is set is there for the next replay, and not for the one before."""
        own = """return optimizer { name = "own", hyper = { lr = 1 }, inputs = { k = "group" },
                 step = function() p = p - lr * k * g end }"""
        p, opt, graph = self.replayed(own)
        for k in (10.0, 100.0, 1000.0):
            torch.cuda._sleep(10_000_000)
            opt.set_scalar("k", k)
            graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(p[0].item(), -1111.0)

    def test_deterministic(self):
        """torch fills memory there, in its own stream: not that of states, which others fill."""
        def run():
            p = torch.zeros(16 << 20, device="cuda", requires_grad=True)
            p.grad = torch.ones_like(p)
            optc.torch.AdamW([p], lr=0.1).step()
            return p.detach().clone()
        want = run()
        self.addCleanup(torch.use_deterministic_algorithms, False)
        torch.use_deterministic_algorithms(True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = run()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(want, found))

    def test_defaults(self):
        """A tensor's default device is the GPU, and a gradient is missing in a capture."""
        self.addCleanup(torch.set_default_device, None)
        torch.set_default_device("cuda")
        b = parameters("cuda")
        opt = optc.torch.AdamW(b)
        grads(b, 0), opt.step()
        b[0].grad = None
        opt.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            opt.step()
        graph.replay()
        steps = [s["step"].item() for s in opt.state_dict()["state"].values()]
        self.assertEqual(steps, [1] + [3] * (len(b) - 1))

    def test_copies_of_a_graph(self):
        """A gradient that lies otherwise is copied into memory that the graph goes on writing
        to."""
        p, odd = torch.zeros(64, 32, device="cuda",
                             requires_grad=True), torch.ones(32, 64, device="cuda").t()
        p.grad = odd
        opt = optc.torch.SGD([p], lr=1.0)
        opt.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            opt.step()
        p.grad = torch.ones_like(p)
        opt.step()
        others = [torch.full((64, 32), 7.0, device="cuda") for _ in range(64)]
        odd.fill_(3.0)
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(all(bool((x == 7).all()) for x in others))
        self.assertEqual(p[0, 0].item(), -5.0)

    def test_released_on_threads(self):
        """Gradients of the CPU and of the GPU arrive in threads of their own."""
        twins = []
        for release in (True, False):
            torch.manual_seed(0)
            ps = [torch.randn(50).to(d).requires_grad_() for d in ("cpu", "cuda") * 8]
            opt = optc.torch.AdamW(ps, lr=0.1, release_grads=release)
            for _ in range(3):
                sum((p.cpu() ** 2).sum() for p in ps).backward()
                opt.step(), opt.zero_grad()
            twins.append(ps)
            self.assertEqual({s["step"].item() for s in opt.state_dict()["state"].values()}, {3})
        for p, q in zip(*twins):
            torch.testing.assert_close(p, q)

    def test_memory(self):
        """States come from torch's allocator and go back to it."""
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        p = [torch.zeros(1 << 20, device="cuda", requires_grad=True)]
        p[0].grad = torch.ones_like(p[0])
        opt = optc.torch.AdamW(p)
        opt.step()
        self.assertGreaterEqual(torch.cuda.memory_allocated() - before, 16 << 20)
        torch.cuda.synchronize()
        del opt, p
        self.assertLess(torch.cuda.memory_allocated() - before, 1 << 20)

    def test_states_stay(self):
        """A group that comes later: states stay where they are, and are never there twice."""
        p = [torch.zeros(4 << 20, device="cuda", requires_grad=True)]
        p[0].grad = torch.ones_like(p[0])
        opt, twin = optc.torch.AdamW(p, lr=0.1), torch.zeros(1, device="cuda", requires_grad=True)
        other = optc.torch.AdamW([twin], lr=0.1)
        opt.step()
        at = opt.state[p[0]]["exp_avg"].data_ptr()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        p.append(torch.zeros(1000, device="cuda", requires_grad=True))
        p[1].grad = torch.ones_like(p[1])
        opt.add_param_group({"params": p[1:]})
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            opt.step()
        torch.cuda.synchronize()
        self.assertLess(torch.cuda.max_memory_allocated() - before, 4 << 20)
        self.assertEqual(opt.state[p[0]]["exp_avg"].data_ptr(), at)
        for _ in range(2):
            twin.grad = torch.ones_like(twin)
            other.step()
        self.assertTrue(torch.equal(p[0][:1], twin))
        self.assertEqual(opt.state_dict()["state"][1]["step"].item(), 1)

    def test_gpt(self):
        a = train_gpt(lambda n: torch.optim.AdamW(n.parameters(), lr=3e-3), steps=60, device="cuda")
        b = train_gpt(lambda n: optc.torch.AdamW(n.parameters(), lr=3e-3), steps=60, device="cuda")
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-3)
        c = train_gpt(lambda n: optc.torch.Muon(n, lr=0.02, adamw_lr=3e-3), steps=40, device="cuda")
        self.assertLess(c[-1], c[0] - 0.3)


if __name__ == "__main__":
    unittest.main()
