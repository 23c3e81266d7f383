// SPDX-License-Identifier: MIT
//
// The workloads of weft-bench on oneTBB: fork-join and spawning. Its tasks have no
// stack of their own and cannot wait.
#include "../peer.h"

#include <atomic>
#include <oneapi/tbb.h>
#include <semaphore.h>

namespace tbb = oneapi::tbb;

static int fib(int n)
{
    if (n < 2)
        return n;
    int a, b;
    tbb::task_group g;
    g.run([&] { a = fib(n - 1); });
    b = fib(n - 2);
    g.wait();
    return a + b;
}

static peer_sample in_arena(long workers, peer_sample (*body)())
{
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, (size_t)workers);
    tbb::task_arena arena((int)workers);
    peer_sample s{};
    arena.execute([&] { s = body(); });
    return s;
}

static peer_sample fork_join(long workers, long)
{
    return in_arena(workers, [] {
        const bool q = peer_quick;
        double t = peer_now();
        int got = fib(q ? 25 : 30);
        peer_sample s = peer_per_op(q ? 121392 : 1346268, t);
        peer_check(got == (q ? 75025 : 832040), "fib");
        return s;
    });
}

static peer_sample spawn(long workers, long)
{
    return in_arena(workers, [] {
        const int n = 100000;
        tbb::task_group g;
        double t = peer_now();
        for (int i = 0; i < n; i++)
            g.run([] {});
        g.wait();
        return peer_per_op(n, t);
    });
}

static peer_sample spawn_external(long, long)
{
    static tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 2);
    static tbb::task_arena arena(1, 0);
    const int n = 100000;
    std::atomic<int> left{n};
    sem_t end;
    sem_init(&end, 0, 0);
    double t = peer_now();
    for (int i = 0; i < n; i++)
        arena.enqueue([&] {
            if (left.fetch_sub(1) == 1)
                sem_post(&end);
        });
    sem_wait(&end);
    return peer_per_op(n, t);
}

static const peer_case cases[] = {
    {"fork_join", "1w", "ns", 5, fork_join, 1, 0},
    {"fork_join", "2w", "ns", 5, fork_join, 2, 0},
    {"spawn_local", "1w", "ns", 9, spawn, 1, 0},
    {"spawn_internal", "2w", "ns", 9, spawn, 2, 0},
    {"spawn_external", "2w", "ns", 9, spawn_external, 2, 0},
};

int main(int argc, char **argv)
{
    return peer_main(argc, argv, cases, sizeof cases / sizeof *cases, nullptr);
}
