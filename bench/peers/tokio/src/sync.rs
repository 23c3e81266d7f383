// SPDX-License-Identifier: MIT
use crate::frame::{latencies, multi, Cases, Sample};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, Mutex};

async fn mutex_alone() -> Sample {
    let (n, m) = (1_000_000, Mutex::new(0usize));
    let t = Instant::now();
    for _ in 0..n {
        *m.lock().await += 1;
    }
    let s = Sample::per_op(n, t);
    assert_eq!(*m.lock().await, n);
    s
}

async fn mutex_shared() -> Sample {
    let (tasks, each) = (8, 100_000);
    let m = Arc::new(Mutex::new(0usize));
    let t = Instant::now();
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            let m = m.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    *m.lock().await += 1;
                }
            })
        })
        .collect();
    for h in handles {
        h.await.unwrap();
    }
    let s = Sample::per_op(tasks * each, t);
    assert_eq!(*m.lock().await, tasks * each);
    s
}

/// tokio's bounded channel has one consumer; so the 4x4 of others is 4x1 here.
async fn channel(capacity: usize, producers: u64, quick: bool) -> Sample {
    let items: u64 = if quick { 100_000 } else { 1_000_000 };
    let (tx, mut rx) = mpsc::channel::<u64>(capacity);
    let t = Instant::now();
    for k in 0..producers {
        let (tx, per) = (tx.clone(), items / producers);
        tokio::spawn(async move {
            for i in k * per..(k + 1) * per {
                tx.send(i).await.unwrap();
            }
        });
    }
    drop(tx);
    let consumer = tokio::spawn(async move {
        let (mut got, mut sum) = (0u64, 0u64);
        while let Some(v) = rx.recv().await {
            got += 1;
            sum += v;
        }
        (got, sum)
    });
    let (got, sum) = consumer.await.unwrap();
    let s = Sample::per_op(items as usize, t);
    assert_eq!((got, sum), (items, items * (items - 1) / 2));
    s
}

/// Between a plain thread and a task on one worker.
fn channel_with_thread(rt: &Runtime, capacity: usize, thread_sends: bool, quick: bool) -> Sample {
    let items: u64 = if quick { 100_000 } else { 1_000_000 };
    let (tx, mut rx) = mpsc::channel::<u64>(capacity);
    let mut sum = 0u64;
    let t = Instant::now();
    if thread_sends {
        let sender = std::thread::spawn(move || (0..items).for_each(|i| tx.blocking_send(i).unwrap()));
        sum = rt
            .block_on(rt.spawn(async move {
                let mut sum = 0u64;
                while let Some(v) = rx.recv().await {
                    sum += v;
                }
                sum
            }))
            .unwrap();
        sender.join().unwrap();
    } else {
        rt.spawn(async move {
            for i in 0..items {
                tx.send(i).await.unwrap();
            }
        });
        while let Some(v) = rx.blocking_recv() {
            sum += v;
        }
    }
    let s = Sample::per_op(items as usize, t);
    assert_eq!(sum, items * (items - 1) / 2);
    s
}

async fn select_four(quick: bool) -> Sample {
    let items: u64 = if quick { 100_000 } else { 1_000_000 };
    let t = Instant::now();
    let mut ends: Vec<mpsc::Receiver<u64>> = (0..4)
        .map(|_| {
            let (tx, rx) = mpsc::channel::<u64>(128);
            tokio::spawn(async move {
                for i in 0..items / 4 {
                    tx.send(i).await.unwrap();
                }
            });
            rx
        })
        .collect();
    let (mut d, mut c, mut b, mut a) =
        (ends.pop().unwrap(), ends.pop().unwrap(), ends.pop().unwrap(), ends.pop().unwrap());
    let mut got = 0u64;
    loop {
        tokio::select! {
            Some(_) = a.recv() => got += 1,
            Some(_) = b.recv() => got += 1,
            Some(_) = c.recv() => got += 1,
            Some(_) = d.recv() => got += 1,
            else => break,
        }
    }
    let s = Sample::per_op(items as usize, t);
    assert_eq!(got, items);
    s
}

// --- handoff: a request with its own reply channel ---

type Request = (u64, oneshot::Sender<u64>);

async fn serve(mut rx: mpsc::Receiver<Request>) {
    while let Some((value, reply)) = rx.recv().await {
        let _ = reply.send(value + 1);
    }
}

fn call(tx: &mpsc::Sender<Request>, value: u64) {
    let (reply, answer) = oneshot::channel();
    tx.blocking_send((value, reply)).unwrap();
    assert_eq!(answer.blocking_recv().unwrap(), value + 1);
}

async fn call_inside(tx: &mpsc::Sender<Request>, value: u64) {
    let (reply, answer) = oneshot::channel();
    tx.send((value, reply)).await.unwrap();
    assert_eq!(answer.await.unwrap(), value + 1);
}

fn handoff_one(cases: &mut Cases, workers: usize) {
    cases.add("handoff", &format!("1x1/{workers}w"), "us", 5, move |quick| {
        let rt = multi(workers);
        let (tx, rx) = mpsc::channel::<Request>(128);
        rt.spawn(serve(rx));
        Box::new(move || {
            let _runtime = &rt;
            latencies(
                (0..if quick { 5_000 } else { 20_000 })
                    .map(|i| {
                        let t = Instant::now();
                        call(&tx, i);
                        t.elapsed().as_nanos() as f64 / 1e3
                    })
                    .collect(),
            )
        })
    });
}

fn handoff_eight(cases: &mut Cases, variant: &str, threads: bool) {
    cases.add("handoff", variant, "k/s", 5, move |quick| {
        let rt = multi(2);
        let each: u64 = if quick { 2_500 } else { 10_000 };
        let ends: Vec<_> = (0..8)
            .map(|_| {
                let (tx, rx) = mpsc::channel::<Request>(128);
                rt.spawn(serve(rx));
                tx
            })
            .collect();
        Box::new(move || {
            let t = Instant::now();
            if threads {
                let all: Vec<_> = ends
                    .iter()
                    .cloned()
                    .map(|tx| std::thread::spawn(move || (0..each).for_each(|i| call(&tx, i))))
                    .collect();
                all.into_iter().for_each(|h| h.join().unwrap());
            } else {
                let all: Vec<_> = ends
                    .iter()
                    .cloned()
                    .map(|tx| {
                        rt.spawn(async move {
                            for i in 0..each {
                                call_inside(&tx, i).await;
                            }
                        })
                    })
                    .collect();
                rt.block_on(async {
                    for h in all {
                        h.await.unwrap();
                    }
                });
            }
            let n = 8 * each as usize;
            Sample { n, value: n as f64 / t.elapsed().as_secs_f64() / 1e3, ..Sample::default() }
        })
    });
}

pub fn add(cases: &mut Cases) {
    cases.add_inside("mutex", "uncontended", 9, 2, |_| mutex_alone());
    for w in [1, 2] {
        cases.add_inside("mutex", &format!("8x/{w}w"), 9, w, |_| mutex_shared());
        for capacity in [1, 128] {
            cases.add_inside("channel", &format!("cap{capacity}/{w}w"), 5, w, move |quick| channel(capacity, 1, quick));
        }
        cases.add_inside("channel", &format!("cap128/4x1/{w}w"), 5, w, |quick| channel(128, 4, quick));
        cases.add_inside("select", &format!("4/{w}w"), 5, w, select_four);
        handoff_one(cases, w);
    }
    for (variant, thread_sends) in [("thread_to_fiber", true), ("fiber_to_thread", false)] {
        cases.add("channel", &format!("cap128/{variant}"), "ns", 5, move |quick| {
            let rt = multi(1);
            Box::new(move || channel_with_thread(&rt, 128, thread_sends, quick))
        });
    }
    handoff_eight(cases, "8x8/threads", true);
    handoff_eight(cases, "8x8/tasks", false);
}
