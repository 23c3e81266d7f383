// SPDX-License-Identifier: MIT
use crate::frame::{current, latencies, multi, Cases, Sample};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// A waker that only counts.
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Creates, arms and cancels n timers, `rounds` times over.
fn lifecycle(rt: &Runtime, n: usize) -> Sample {
    let _guard = rt.enter();
    let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0))));
    let mut cx = Context::from_waker(&waker);
    let rounds = if n < 100_000 { 200_000 / n } else { 1 };
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        let t = Instant::now();
        let mut all: Vec<Pin<Box<Sleep>>> =
            (0..n).map(|_| Box::pin(tokio::time::sleep(Duration::from_secs(86400)))).collect();
        for s in all.iter_mut() {
            assert!(s.as_mut().poll(&mut cx).is_pending());
        }
        drop(all);
        total += t.elapsed();
    }
    Sample { n: n * rounds, value: total.as_nanos() as f64 / (n * rounds) as f64, ..Sample::default() }
}

/// n timers fall due while nobody drives; then the driver runs until all have fired.
fn expiry(rt: &Runtime, n: usize, spread: bool) -> Sample {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let base = tokio::time::Instant::now();
    let guard = rt.enter();
    let mut all: Vec<Pin<Box<Sleep>>> = (0..n)
        .map(|i| {
            let ms = if spread { 1 + (i * 2654435761 >> 7) % 4096 } else { 150 };
            Box::pin(tokio::time::sleep_until(base + Duration::from_millis(ms as u64)))
        })
        .collect();
    for s in all.iter_mut() {
        assert!(s.as_mut().poll(&mut cx).is_pending());
    }
    drop(guard);
    std::thread::sleep(Duration::from_millis(if spread { 4110 } else { 160 }));
    let s = rt.block_on(async {
        let t = Instant::now();
        while count.0.load(Relaxed) < n {
            tokio::task::yield_now().await;
        }
        Sample::per_op(n, t)
    });
    assert_eq!(count.0.load(Relaxed), n);
    s
}

async fn sleeps(quick: bool) -> Sample {
    let n = if quick { 5 } else { 20 };
    let mut over = 0.0;
    for _ in 0..n {
        let t = Instant::now();
        tokio::time::sleep(Duration::from_millis(100)).await;
        over += t.elapsed().as_secs_f64() * 1e3 - 100.0;
    }
    Sample { n, value: over * 20.0 / n as f64, ..Sample::default() }
}

fn wakes(rt: &Runtime, n: usize) -> Sample {
    let base = Instant::now();
    let now = move || base.elapsed().as_nanos() as u64;
    latencies(
        (0..n)
            .map(|_| {
                let (tx, rx) = oneshot::channel::<()>();
                let ran = Arc::new(AtomicU64::new(0));
                let stamp = ran.clone();
                rt.spawn(async move {
                    rx.await.unwrap();
                    stamp.store(now(), Release);
                });
                std::thread::sleep(Duration::from_micros(200));
                let t0 = now();
                tx.send(()).unwrap();
                std::thread::sleep(Duration::from_micros(200));
                while ran.load(Acquire) == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                (ran.load(Acquire) - t0) as f64 / 1e3
            })
            .collect(),
    )
}

pub fn add(cases: &mut Cases) {
    for n in [64, 1024, 100_000] {
        cases.add("timer_lifecycle", &n.to_string(), "ns", 9, move |_| {
            let rt = multi(2);
            Box::new(move || lifecycle(&rt, n))
        });
    }
    for (variant, n, spread) in [("same/1024", 1024, false), ("same/100000", 100_000, false), ("spread/1024", 1024, true)]
    {
        cases.add("timer_expiry", variant, "ns", 5, move |_| {
            let rt = current();
            Box::new(move || expiry(&rt, n, spread))
        });
    }
    for w in [1, 2] {
        cases.add("sleep_precision", &format!("{w}w"), "ms", 3, move |quick| {
            let rt = multi(w);
            Box::new(move || crate::frame::inside(&rt, sleeps(quick)))
        });
        cases.add("wake_latency", &format!("{w}w"), "us", 5, move |quick| {
            let rt = multi(w);
            Box::new(move || wakes(&rt, if quick { 500 } else { 2000 }))
        });
    }
}
