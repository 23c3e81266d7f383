// SPDX-License-Identifier: MIT
//
// The workloads of weft-bench on Boost.Fiber: one thread, round robin, pooled stacks.
#include "../peer.h"

#include <boost/fiber/all.hpp>
#include <vector>

namespace bf = boost::fibers;

static bf::pooled_fixedsize_stack stacks(64 * 1024);
static bf::pooled_fixedsize_stack small_stacks(16 * 1024);

template <class F> static bf::fiber start(F &&f)
{
    return bf::fiber(bf::launch::post, std::allocator_arg, stacks, std::forward<F>(f));
}

static peer_sample spawn_local(long, long)
{
    const int n = 100000;
    std::vector<bf::fiber> all;
    all.reserve(n);
    double t = peer_now();
    for (int i = 0; i < n; i++)
        all.push_back(bf::fiber(bf::launch::post, std::allocator_arg, small_stacks, [] {}));
    for (auto &f : all)
        f.join();
    return peer_per_op(n, t);
}

static peer_sample ping_pong(long, long)
{
    const int n = 1000;
    std::vector<bf::fiber> all;
    double t = peer_now();
    for (int i = 0; i < n; i++)
        all.push_back(start([] {
            bf::promise<void> ping, pong;
            auto pinged = ping.get_future(), ponged = pong.get_future();
            auto other = start([&] {
                pinged.get();
                pong.set_value();
            });
            ping.set_value();
            ponged.get();
            other.join();
        }));
    for (auto &f : all)
        f.join();
    return peer_per_op(n, t);
}

static peer_sample yield_many(long, long)
{
    const int tasks = 200, yields = 1000;
    std::vector<bf::fiber> all;
    double t = peer_now();
    for (int i = 0; i < tasks; i++)
        all.push_back(start([] {
            for (int j = 0; j < yields; j++)
                boost::this_fiber::yield();
        }));
    for (auto &f : all)
        f.join();
    return peer_per_op(tasks * yields, t);
}

static peer_sample mutex_alone(long, long)
{
    const int n = 1000000;
    bf::mutex m;
    long x = 0;
    double t = peer_now();
    for (int i = 0; i < n; i++) {
        m.lock();
        x++;
        m.unlock();
    }
    peer_sample s = peer_per_op(n, t);
    peer_check(x == n, "mutex");
    return s;
}

template <class Channel> static peer_sample stream(Channel &ch)
{
    const uint64_t n = peer_quick ? 100000 : 1000000;
    uint64_t got = 0, sum = 0;
    double t = peer_now();
    auto tx = start([&] {
        for (uint64_t i = 0; i < n; i++)
            ch.push(i);
        ch.close();
    });
    auto rx = start([&] {
        for (uint64_t v; ch.pop(v) == bf::channel_op_status::success; got++)
            sum += v;
    });
    tx.join();
    rx.join();
    peer_sample s = peer_per_op((double)n, t);
    peer_check(got == n && sum == n * (n - 1) / 2, "every item came once");
    return s;
}

static peer_sample channel(long capacity, long)
{
    if (capacity == 0) {
        bf::unbuffered_channel<uint64_t> ch;
        return stream(ch);
    }
    bf::buffered_channel<uint64_t> ch((size_t)capacity);
    return stream(ch);
}

static peer_sample sleeps(long, long)
{
    int n = peer_quick ? 5 : 20;
    double over = 0;
    for (int i = 0; i < n; i++) {
        double t = peer_now();
        boost::this_fiber::sleep_for(std::chrono::milliseconds(100));
        over += (peer_now() - t) / 1e6 - 100;
    }
    return peer_sample{(double)n, over * 20 / n, 0, 0};
}

static peer_sample memory(long n, long)
{
    bf::mutex m;
    bf::condition_variable gate;
    bool open = false;
    long parked = 0, woken = 0;
    double before = peer_resident();
    for (long i = 0; i < n; i++)
        bf::fiber(bf::launch::post, std::allocator_arg, small_stacks, [&] {
            std::unique_lock<bf::mutex> lock(m);
            parked++;
            gate.wait(lock, [&] { return open; });
            woken++;
        }).detach();
    while (parked < n)
        boost::this_fiber::yield();
    peer_sample s = {(double)n, (peer_resident() - before) / (double)n, 0, 0};
    open = true;
    gate.notify_all();
    while (woken < n)
        boost::this_fiber::yield();
    return s;
}

static const peer_case cases[] = {
    {"spawn_local", "1w", "ns", 5, spawn_local, 0, 0},
    {"ping_pong", "all/1w", "ns", 9, ping_pong, 0, 0},
    {"yield_many", "1w", "ns", 9, yield_many, 0, 0},
    {"mutex", "uncontended", "ns", 9, mutex_alone, 0, 0},
    {"channel", "cap0/1w", "ns", 5, channel, 0, 0},
    {"channel", "cap2/1w", "ns", 5, channel, 2, 0}, /* its smallest */
    {"channel", "cap128/1w", "ns", 5, channel, 128, 0},
    {"sleep_precision", "1w", "ms", -3, sleeps, 0, 0},
    {"memory", "100000", "bytes", -1, memory, 100000, 0},
};

int main(int argc, char **argv)
{
    return peer_main(argc, argv, cases, sizeof cases / sizeof *cases, nullptr);
}
