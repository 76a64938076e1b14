// optc from C++17: fits the matrix of a rotation from examples. Objects free themselves in the
// right order.
//     circle [DEVICE] [RULE]        for example: circle cuda 'adamw+clip(1)'
#include <optc.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(optc_status s)
{
    if (s != OPTC_OK)
        throw std::runtime_error(std::string(optc_status_name(s)) + ": " + optc_message());
}

template <auto close> struct Closer {
    template <class T> void operator()(T *x) const { close(x); }
};
using Engine = std::unique_ptr<optc_engine, Closer<optc_close>>;
using Rule = std::unique_ptr<optc_rule, Closer<optc_release>>;
using Binding = std::unique_ptr<optc_binding, Closer<optc_unbind>>;

Engine open(const char *device)
{
    optc_engine_options o = {};
    optc_engine *e = nullptr;
    o.device = device;
    check(optc_open(&o, &e));
    return Engine(e);
}

Rule compile(const Engine &e, const char *spec)
{
    optc_rule_options o = {};
    optc_rule *r = nullptr;
    o.spec = spec;
    check(optc_compile(e.get(), &o, &r));
    return Rule(r);
}

// Floats in the device's memory.
class DeviceArray {
public:
  DeviceArray(const Engine &e, size_t n)
      : engine(e.get()), bytes(static_cast<int64_t>(n * sizeof(float)))
  {
      check(optc_alloc(engine, bytes, nullptr, &at));
    }
    ~DeviceArray() { optc_free(engine, at, nullptr); }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;
    void write(const std::vector<float> &x)
    {
        check(optc_copy(engine, at, x.data(), bytes, nullptr));
    }
    void read(std::vector<float> &x) const
    {
        check(optc_copy(engine, x.data(), at, bytes, nullptr));
    }
    void *data() const { return at; }

private:
    optc_engine *engine;
    int64_t bytes;
    void *at = nullptr;
};

// Mean squared error of w x against the rotation of x by 30 degrees, over points of the circle;
// adds up its gradient.
double loss(const std::vector<float> &w, std::vector<float> &g)
{
    const double c = std::cos(M_PI / 6), s = std::sin(M_PI / 6);
    double sum = 0;
    g.assign(4, 0);
    for (int k = 0; k < 64; k++) {
        const double x = std::cos(k * M_PI / 32), y = std::sin(k * M_PI / 32);
        const double dx = w[0] * x + w[1] * y - (c * x - s * y),
                     dy = w[2] * x + w[3] * y - (s * x + c * y);
        sum += (dx * dx + dy * dy) / 64;
        g[0] += static_cast<float>(dx * x / 32);
        g[1] += static_cast<float>(dx * y / 32);
        g[2] += static_cast<float>(dy * x / 32);
        g[3] += static_cast<float>(dy * y / 32);
    }
    return sum;
}

int run(const char *device, const char *spec)
{
    Engine e = open(device);
    Rule r = compile(e, spec);
    std::vector<float> w = {1, 0, 0, 1}, g(4);
    DeviceArray param(e, 4), grad(e, 4);
    param.write(w);
    const int64_t shape[] = {2, 2};
    optc_tensor t = {};
    t.name = "rotation";
    t.param = param.data();
    t.grad = grad.data();
    t.rank = 2;
    t.shape = shape;
    optc_group all = {};
    all.tensors = &t;
    all.ntensors = 1;
    optc_binding *bound = nullptr;
    check(optc_bind(r.get(), &all, 1, &bound));
    Binding b(bound);
    check(optc_set_hyper(b.get(), 0, "lr", 0.02));
    double left = 0;
    for (int step = 0; step <= 200; step++) {
        param.read(w);
        left = loss(w, g);
        if (step % 50 == 0)
            std::printf("step %3d: loss %.3g\n", step, left);
        grad.write(g);
        check(optc_step(b.get()));
        check(optc_sync(b.get()));
    }
    std::printf("%s with %s: %.3f %.3f %.3f %.3f\n", optc_device_name(e.get()), spec, w[0], w[1],
                w[2], w[3]);
    return left < 1e-3 ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv)
{
    try {
        return run(argc > 1 ? argv[1] : "best", argc > 2 ? argv[2] : "adamw");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
