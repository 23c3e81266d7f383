// SPDX-License-Identifier: MIT
use crate::frame::{current, multi, percentile, resident, Cases, Sample};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{mpsc, Arc, Barrier};
use std::time::Instant;
use tokio::sync::{oneshot, Notify};

const TASKS: usize = 100_000;

/// Counts down, and tells the one who waits at zero.
struct Left {
    count: AtomicUsize,
    zero: Notify,
}

impl Left {
    fn new(n: usize) -> Arc<Left> {
        Arc::new(Left { count: AtomicUsize::new(n), zero: Notify::new() })
    }
    fn done(&self) {
        if self.count.fetch_sub(1, AcqRel) == 1 {
            self.zero.notify_one();
        }
    }
}

async fn spawn_detached() -> Sample {
    let t = Instant::now();
    let left = Left::new(TASKS);
    for _ in 0..TASKS {
        let left = left.clone();
        tokio::spawn(async move { left.done() });
    }
    left.zero.notified().await;
    Sample::per_op(TASKS, t)
}

async fn spawn_joined() -> Sample {
    let t = Instant::now();
    let mut handles = Vec::with_capacity(TASKS);
    for _ in 0..TASKS {
        handles.push(tokio::spawn(async {}));
    }
    for h in handles {
        h.await.unwrap();
    }
    Sample::per_op(TASKS, t)
}

async fn spawn_in_local_set() -> Sample {
    let t = Instant::now();
    let mut handles = Vec::with_capacity(TASKS);
    for _ in 0..TASKS {
        handles.push(tokio::task::spawn_local(async {}));
    }
    for h in handles {
        h.await.unwrap();
    }
    Sample::per_op(TASKS, t)
}

fn flood_thread(each: usize, every: usize, left: &Arc<Left>, out: &mpsc::Sender<f64>) {
    for i in 0..each {
        let left = left.clone();
        if i % every == every - 1 {
            let (t, out) = (Instant::now(), out.clone());
            tokio::spawn(async move {
                out.send(t.elapsed().as_nanos() as f64 / 1e3).unwrap();
                left.done();
            });
        } else {
            tokio::spawn(async move { left.done() });
        }
    }
}

fn flood(rt: &tokio::runtime::Runtime, quick: bool, outside: bool) -> Sample {
    let (spawners, every) = (8usize, 64usize);
    let each = (if quick { 100_000 } else { 1_000_000 }) / spawners / every * every;
    let left = Left::new(spawners * each);
    let (tx, rx) = mpsc::channel();
    let start = Arc::new(Barrier::new(spawners + 1));
    let open = Arc::new(tokio::sync::Semaphore::new(0));
    let threads: Vec<_> = (0..spawners)
        .map(|_| {
            let (left, tx, start, open) = (left.clone(), tx.clone(), start.clone(), open.clone());
            let handle = rt.handle().clone();
            if outside {
                Some(std::thread::spawn(move || {
                    let _guard = handle.enter();
                    start.wait();
                    flood_thread(each, every, &left, &tx);
                }))
            } else {
                rt.spawn(async move {
                    let _permit = open.acquire().await.unwrap();
                    flood_thread(each, every, &left, &tx);
                });
                None
            }
        })
        .collect();
    drop(tx);
    if outside {
        start.wait();
    }
    let t = Instant::now();
    open.add_permits(spawners);
    rt.block_on(left.zero.notified());
    let elapsed = t.elapsed();
    let rss = resident() / 1048576.0;
    for h in threads.into_iter().flatten() {
        h.join().unwrap();
    }
    let n = spawners * each;
    let mut waited: Vec<f64> = rx.iter().collect();
    assert_eq!(waited.len(), n / every);
    Sample {
        n,
        value: n as f64 / elapsed.as_secs_f64() / 1e6,
        p50_us: Some(percentile(&mut waited, 0.5)),
        p90_us: Some(percentile(&mut waited, 0.9)),
        p99_us: Some(percentile(&mut waited, 0.99)),
        rss_mib: Some(rss),
    }
}

fn link(end: oneshot::Sender<()>, left: usize) {
    if left == 1 {
        end.send(()).unwrap();
    } else {
        tokio::spawn(async move { link(end, left - 1) });
    }
}

pub fn add(cases: &mut Cases) {
    cases.add("spawn_local", "1w", "ns", 9, |_| {
        let rt = current();
        Box::new(move || rt.block_on(spawn_detached()))
    });
    cases.add("spawn_local", "1w/joined", "ns", 9, |_| {
        let rt = current();
        Box::new(move || rt.block_on(spawn_joined()))
    });
    cases.add("spawn_local", "1w/local_set", "ns", 9, |_| {
        let (rt, set) = (current(), tokio::task::LocalSet::new());
        Box::new(move || set.block_on(&rt, spawn_in_local_set()))
    });
    cases.add("spawn_external", "2w", "ns", 9, |_| {
        let rt = multi(2);
        Box::new(move || {
            let (tx, rx) = mpsc::sync_channel::<()>(1);
            let left = Arc::new(AtomicUsize::new(TASKS));
            let t = Instant::now();
            for _ in 0..TASKS {
                let (left, tx) = (left.clone(), tx.clone());
                rt.spawn(async move {
                    if left.fetch_sub(1, AcqRel) == 1 {
                        tx.send(()).unwrap();
                    }
                });
            }
            rx.recv().unwrap();
            Sample::per_op(TASKS, t)
        })
    });
    cases.add_inside("spawn_internal", "2w", 9, 2, |_| spawn_detached());
    for (variant, outside) in [("outside", true), ("inside", false)] {
        cases.add("spawn_flood", variant, "M/s", 5, move |quick| {
            let rt = multi(2);
            Box::new(move || flood(&rt, quick, outside))
        });
    }
    for workers in [1, 2] {
        for depth in [1000, 10_000] {
            cases.add("chained_spawn", &format!("{depth}/{workers}w"), "ns", 25, move |_| {
                let rt = multi(workers);
                Box::new(move || {
                    let t = Instant::now();
                    rt.block_on(async {
                        let (tx, rx) = oneshot::channel();
                        tokio::spawn(async move { link(tx, depth) });
                        rx.await.unwrap();
                    });
                    Sample::per_op(depth, t)
                })
            });
        }
    }
}
