// SPDX-License-Identifier: MIT
//
// The workloads of weft-bench on tokio. Called as `tokio-peer NAME VARIANT [--quick]
// [--repeats N]`, or --list; prints JSON lines like weft-bench.
mod frame;
mod join;
mod spawn;
mod switch;
mod sync;
mod time;

fn main() {
    let mut list = frame::Cases::default();
    spawn::add(&mut list);
    switch::add(&mut list);
    sync::add(&mut list);
    time::add(&mut list);
    join::add(&mut list);
    frame::main(list);
}
