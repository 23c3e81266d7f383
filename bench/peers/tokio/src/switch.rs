// SPDX-License-Identifier: MIT
use crate::frame::{current, multi, Cases, Sample};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{oneshot, Notify};

const PAIRS: usize = 1000;

async fn all_at_once() -> Sample {
    let left = Arc::new(AtomicUsize::new(PAIRS));
    let zero = Arc::new(Notify::new());
    let t = Instant::now();
    for _ in 0..PAIRS {
        let (left, zero) = (left.clone(), zero.clone());
        tokio::spawn(async move {
            let (ping_tx, ping) = oneshot::channel();
            let (pong_tx, pong) = oneshot::channel();
            tokio::spawn(async move {
                ping.await.unwrap();
                pong_tx.send(()).unwrap();
            });
            ping_tx.send(()).unwrap();
            pong.await.unwrap();
            if left.fetch_sub(1, AcqRel) == 1 {
                zero.notify_one();
            }
        });
    }
    zero.notified().await;
    Sample::per_op(PAIRS, t)
}

async fn one_by_one() -> Sample {
    let t = Instant::now();
    for _ in 0..PAIRS {
        let (ping_tx, ping) = oneshot::channel();
        let (pong_tx, pong) = oneshot::channel();
        let a = tokio::spawn(async move {
            ping.await.unwrap();
            pong_tx.send(()).unwrap();
        });
        let b = tokio::spawn(async move {
            ping_tx.send(()).unwrap();
            pong.await.unwrap();
        });
        a.await.unwrap();
        b.await.unwrap();
    }
    Sample::per_op(PAIRS, t)
}

async fn yields() -> Sample {
    let (tasks, each) = (200, 1000);
    let t = Instant::now();
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            tokio::spawn(async move {
                for _ in 0..each {
                    tokio::task::yield_now().await
                }
            })
        })
        .collect();
    for h in handles {
        h.await.unwrap();
    }
    Sample::per_op(tasks * each, t)
}

pub fn add(cases: &mut Cases) {
    for w in [1, 2] {
        cases.add("ping_pong", &format!("all/{w}w"), "ns", 25, move |_| {
            let rt = multi(w);
            Box::new(move || crate::frame::inside(&rt, all_at_once()))
        });
        cases.add_inside("ping_pong", &format!("seq/{w}w"), 9, w, |_| one_by_one());
        cases.add_inside("yield_many", &format!("{w}w"), 9, w, |_| yields());
    }
    cases.add("yield_many", "1w/current_thread", "ns", 9, |_| {
        let rt = current();
        Box::new(move || rt.block_on(yields()))
    });
}
