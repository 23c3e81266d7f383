// SPDX-License-Identifier: MIT
use crate::frame::{current, multi, resident, Cases, Sample};
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

fn fib(n: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return n as u64;
        }
        let a = tokio::spawn(fib(n - 1));
        let b = fib(n - 2).await;
        a.await.unwrap() + b
    })
}

async fn fork_join(quick: bool) -> Sample {
    let (n, spawns, want) = if quick { (25, 121_392, 75_025) } else { (30, 1_346_268, 832_040) };
    let t = Instant::now();
    let got = fib(n).await;
    let s = Sample::per_op(spawns, t);
    assert_eq!(got, want);
    s
}

fn memory(n: usize) -> Sample {
    let rt = multi(2);
    let (gate, parked) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let mut handles = Vec::with_capacity(n);
    let before = resident();
    for _ in 0..n {
        let (gate, parked) = (gate.clone(), parked.clone());
        handles.push(rt.spawn(async move {
            let open = gate.notified();
            parked.fetch_add(1, Relaxed);
            open.await
        }));
    }
    while parked.load(Relaxed) < n {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100));
    let value = (resident() - before) / n as f64 - std::mem::size_of::<tokio::task::JoinHandle<()>>() as f64;
    gate.notify_waiters();
    rt.block_on(async {
        for h in handles {
            h.await.unwrap();
        }
    });
    Sample { n, value, ..Sample::default() }
}

/// Prints "ready" and sleeps; bench/run counts the context switches.
fn idle() -> Sample {
    let rt = multi(4);
    println!("ready");
    std::io::stdout().flush().unwrap();
    rt.block_on(async { tokio::spawn(tokio::time::sleep(Duration::from_secs(10))).await.unwrap() });
    Sample { n: 1, ..Sample::default() }
}

/// An echo server on one thread; never returns.
pub fn echo(port: u16) -> ! {
    current().block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        println!("ready");
        std::io::stdout().flush().unwrap();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let mut buffer = [0u8; 1024];
                loop {
                    match socket.read(&mut buffer).await {
                        Ok(0) | Err(_) => return,
                        Ok(n) => {
                            if socket.write_all(&buffer[..n]).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            });
        }
    })
}

pub fn add(cases: &mut Cases) {
    for w in [1, 2] {
        cases.add_inside("fork_join", &format!("{w}w"), 5, w, fork_join);
    }
    for n in [100_000, 1_000_000] {
        cases.add("memory", &n.to_string(), "bytes", 1, move |_| Box::new(move || memory(n)));
    }
    cases.add("idle", "4w", "switches", 1, |_| Box::new(idle));
    cases.add("block_on", "ready", "ns", 9, |_| {
        let (rt, n) = (current(), 1_000_000);
        Box::new(move || {
            let t = Instant::now();
            for _ in 0..n {
                rt.block_on(async { std::hint::black_box(1) });
            }
            Sample::per_op(n, t)
        })
    });
    cases.add("block_on", "ready/multi", "ns", 9, |_| {
        let (rt, n) = (multi(2), 1_000_000);
        Box::new(move || {
            let t = Instant::now();
            for _ in 0..n {
                rt.block_on(async { std::hint::black_box(1) });
            }
            Sample::per_op(n, t)
        })
    });
    cases.add("block_on", "spawn_join", "ns", 9, |_| {
        let (rt, n) = (current(), 200_000);
        Box::new(move || {
            let t = Instant::now();
            for _ in 0..n {
                rt.block_on(async { tokio::spawn(async {}).await.unwrap() });
            }
            Sample::per_op(n, t)
        })
    });
}
