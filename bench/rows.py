# SPDX-License-Identifier: MIT
"""The rows of the table: which case of weft stands against which of the peers'.

A row has a workload and a variant, which are also the names of weft's case. Each peer
runs its case of the same workload and variant; `peer` names others instead (the best of
several counts, since idioms differ), a dictionary names them per peer; `peer_workload`
where the peers' has another name. `base` is the name of the raw baseline that weft-bench
times in between its own runs; `beside` names other cases of weft's own to stand against.
`target` is the ratio to the best peer to reach, `limit` a
figure that is to be kept whatever the peers take. Higher is better where the unit is a
rate.
"""

RATES = ("M/s", "k/s")


def row(workload, variant, peer=None, target=None, base=None, limit=None, peer_workload=None, beside=None):
    return {"workload": workload, "variant": variant, "peer": peer or variant, "beside": beside or {},
            "peer_workload": peer_workload or workload, "target": target, "base": base, "limit": limit}


def _workers(workload, prefix, **more):
    return [row(workload, f"{prefix}{w}w", **more) for w in (1, 2)]


def _timers(workload, styles, sizes, target):
    return [row(workload, style + size, size, target) for style in styles for size in sizes]


# More workers than processors, against the same case on 2 workers.
MANY_WORKERS = [("spawn_internal", "fiber/", "fiber"), ("ping_pong", "all/", "all/2w"),
                ("yield_many", "fiber/", "fiber/2w"), ("mutex", "8x/", "8x/2w"),
                ("channel", "cap128/4x4/", "cap128/4x4/2w"), ("fork_join", "", "2w")]
MANY = [row(workload, prefix + w, peer="none", target=1.5, beside={"2 workers": few})
        for workload, prefix, few in MANY_WORKERS for w in ("8w", "64w")]

# Waits of a host, and weft's own for the same.
PACER = [
    *[row("pacer_handoff", f"weft/{n}/{w}w", limit=1000)
      for w in (1, 2) for n in (5000, 20000, 50000, 1000000)],
    row("pacer_handoff", "host/50000/1t"),
    row("pacer_handoff", "host/20000/2t"),
    row("pacer_rest", "host/waiting", target=1.05, base="sequence"),
    row("pacer_rest", "host/sleeping", limit=1),
    row("pacer_sleeps", "weft/4w", limit=2010),
    row("pacer_sleeps", "host/1t", limit=2019),
    row("pacer_arrival", "host/1t", limit=1000),
]

# A pool as an interface, against the queues that are built in.
POOLS = [row("pool", f"{load}/{kind}", beside={"built in": f"{load}/built_in"})
         for load in ("external", "yield", "tree") for kind in ("single", "computational", "stealable")]

SPAWN_LOCAL = {"": "1w", "tokio": ["1w", "1w/joined", "1w/local_set"]}

ROWS = [
    row("spawn_local", "fiber", SPAWN_LOCAL, 0.66),
    row("spawn_local", "poll", SPAWN_LOCAL, 1.0),
    row("spawn_external", "fiber", "2w", 0.66),
    row("spawn_external", "poll", "2w", 0.66),
    row("spawn_internal", "fiber", "2w", 0.66),
    row("spawn_internal", "poll", "2w", 0.66),
    row("spawn_flood", "outside", target=1.0),
    row("spawn_flood", "inside", target=1.0),
    row("chained_spawn", "fiber/1000/1w", "1000/1w", 0.33),
    row("chained_spawn", "fiber/10000/1w", "10000/1w", 0.33),
    row("chained_spawn", "fiber/1000/2w", "1000/2w", 0.33),
    row("chained_spawn", "fiber/10000/2w", "10000/2w", 0.33),
    row("chained_spawn", "poll/10000/1w", "10000/1w", 0.33),
    row("chained_spawn", "poll/10000/2w", "10000/2w", 0.33),
    *_workers("ping_pong", "all/", target=0.5),
    *_workers("ping_pong", "seq/", target=0.5),
    row("yield_many", "fiber/1w", {"": "1w", "tokio": ["1w", "1w/current_thread"]}, 0.3),
    row("yield_many", "fiber/2w", "2w", 0.3),
    row("yield_many", "poll/1w", {"": "1w", "tokio": ["1w", "1w/current_thread"]}, 0.3),
    row("yield_many", "poll/2w", "2w", 0.3),
    row("mutex", "uncontended", target=1.0),
    *_workers("mutex", "8x/", target=1.0),
    *_workers("channel", "cap0/", target=0.5),
    row("channel", "cap1/1w", {"": "cap1/1w", "boost_fiber": "cap2/1w"}, 0.5),
    row("channel", "cap1/2w", target=0.5),
    *_workers("channel", "cap128/", target=0.66),
    row("channel", "cap128/thread_to_fiber", target=0.66),
    row("channel", "cap128/fiber_to_thread", target=0.66),
    row("channel", "cap1/thread_to_fiber"),
    row("channel", "cap1/fiber_to_thread"),
    row("channel", "cap128/4x4/1w", {"": "cap128/4x4/1w", "tokio": "cap128/4x1/1w"}, 0.66),
    row("channel", "cap128/4x4/2w", {"": "cap128/4x4/2w", "tokio": "cap128/4x1/2w"}, 0.66),
    *_workers("select", "4/", target=0.5),
    row("value", "ready"),
    row("value", "waited/1w"),
    row("value", "waited/2w"),
    *_timers("timer_lifecycle", ["", "local/", "poll/"], ["64", "1024", "100000"], 0.5),
    *_timers("timer_expiry", ["", "poll/"], ["same/1024", "same/100000", "spread/1024"], 0.33),
    *_workers("sleep_precision", "", target=1.2, base="nanosleep"),
    *_workers("wake_latency", "", target=1.0, base="futex"),
    row("memory", "fiber/100000", "100000", limit=4500),
    row("memory", "poll/100000", "100000", limit=200),
    row("memory", "fiber/1000000", "1000000", limit=4500),
    row("memory", "poll/1000000", "1000000", limit=200),
    row("idle", "4w", ["4w", "1w"], 1.0),
    *[row("echo", n, target=0.95, base="epoll") for n in ("1", "64", "1000")],
    *[row("echo", n + "/cpu", target=1.05, base="epoll") for n in ("1", "64", "1000")],
    *_workers("http", "", target=1.0),
    *_workers("handoff", "1x1/", target=1.0, base="semaphores"),
    *[row("handoff", v, target=1.0, base="semaphores") for v in ("1x1/thread", "1x8/thread")],
    row("handoff", "8x8/threads", target=1.5),
    row("handoff", "8x8/to_threads", "8x8/threads", target=1.0),
    row("handoff", "8x8/tasks", target=1.0),
    *[row("request", v, target=t, peer_workload="handoff")
      for v, t in (("1x1/1w", 1.0), ("1x1/2w", 1.0), ("8x8/threads", 1.5), ("8x8/tasks", 1.0))],
    *_workers("fork_join", "", target=1.0),
    row("block_on", "ready", ["ready", "ready/multi"], 0.5),
    row("block_on", "turn/fiber"),
    row("block_on", "turn/poll"),
    row("block_on", "spawn_join/fiber", "spawn_join", 0.5),
    row("block_on", "spawn_join/poll", "spawn_join", 0.5),
    row("cancel", "1w"),
    row("cancel", "2w"),
    *MANY,
    *PACER,
    *POOLS,
]

# Left out of quick runs: near to another row, or long.
FULL_ONLY = {
    "memory/fiber/1000000", "memory/poll/1000000",
    "chained_spawn/fiber/1000/1w", "chained_spawn/fiber/1000/2w",
    "timer_lifecycle/64", "timer_lifecycle/local/64", "timer_lifecycle/local/1024", "timer_lifecycle/poll/64",
    "timer_expiry/spread/1024", "timer_expiry/poll/spread/1024",
    "echo/1/cpu", "echo/1000/cpu",
    *[f"{r['workload']}/{r['variant']}" for r in MANY + PACER + POOLS],
}
