// SPDX-License-Identifier: MIT
//
// The frame: cases by name, medians over repeats, JSON.
use std::future::Future;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};

/// What one run measured; None is left out of the output.
#[derive(Default, Clone)]
pub struct Sample {
    pub n: usize,
    pub value: f64,
    pub p50_us: Option<f64>,
    pub p90_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub rss_mib: Option<f64>,
}

impl Sample {
    pub fn per_op(n: usize, since: Instant) -> Sample {
        Sample { n, value: since.elapsed().as_nanos() as f64 / n as f64, ..Sample::default() }
    }
}

/// Given `quick`, makes the function that runs once.
type Start = Box<dyn Fn(bool) -> Box<dyn FnMut() -> Sample>>;

struct Case {
    name: &'static str,
    variant: String,
    unit: &'static str,
    repeats: usize,
    start: Start,
}

#[derive(Default)]
pub struct Cases(Vec<Case>);

impl Cases {
    pub fn add<F>(&mut self, name: &'static str, variant: &str, unit: &'static str, repeats: usize, start: F)
    where
        F: Fn(bool) -> Box<dyn FnMut() -> Sample> + 'static,
    {
        self.0.push(Case { name, variant: variant.to_string(), unit, repeats, start: Box::new(start) });
    }

    /// A case whose run is a future that is spawned on `workers` workers.
    pub fn add_inside<F, T>(&mut self, name: &'static str, variant: &str, repeats: usize, workers: usize, run: F)
    where
        F: Fn(bool) -> T + Clone + 'static,
        T: Future<Output = Sample> + Send + 'static,
    {
        self.add(name, variant, "ns", repeats, move |quick| {
            let rt = multi(workers);
            let run = run.clone();
            Box::new(move || inside(&rt, run(quick)))
        });
    }
}

pub fn multi(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

pub fn current() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub fn inside<T: Future<Output = Sample> + Send + 'static>(rt: &Runtime, run: T) -> Sample {
    rt.block_on(async { tokio::spawn(run).await.unwrap() })
}

pub fn percentile(v: &mut [f64], p: f64) -> f64 {
    v.sort_by(|a, b| a.partial_cmp(b).unwrap());
    v[((v.len() as f64 * p) as usize).min(v.len() - 1)]
}

/// A sample whose figure is the median latency, in us.
pub fn latencies(mut v: Vec<f64>) -> Sample {
    let p50 = percentile(&mut v, 0.5);
    Sample { n: v.len(), value: p50, p50_us: Some(p50), p99_us: Some(percentile(&mut v, 0.99)), ..Sample::default() }
}

pub fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

fn measure(case: &Case, quick: bool, repeats: usize) {
    let n = match (repeats, quick) {
        (0, true) => case.repeats.min(3),
        (0, false) => case.repeats,
        (n, _) => n,
    };
    let mut run = (case.start)(quick);
    if !["memory", "idle", "sleep_precision", "timer_expiry"].contains(&case.name) {
        run();
    }
    let samples: Vec<Sample> = (0..n).map(|_| run()).collect();
    let mut values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    let median = percentile(&mut values, 0.5);
    print!(
        "{{\"name\":\"{}\",\"variant\":\"{}\",\"n\":{},\"unit\":\"{}\",\"value\":{:.4}",
        case.name, case.variant, samples[0].n, case.unit, median
    );
    let figures: [(&str, fn(&Sample) -> Option<f64>); 4] = [
        ("p50_us", |s| s.p50_us),
        ("p90_us", |s| s.p90_us),
        ("p99_us", |s| s.p99_us),
        ("rss_mib", |s| s.rss_mib),
    ];
    for (key, get) in figures {
        let mut v: Vec<f64> = samples.iter().filter_map(get).collect();
        if !v.is_empty() {
            print!(",\"{}\":{:.4}", key, percentile(&mut v, 0.5));
        }
    }
    println!(",\"min\":{:.4},\"max\":{:.4},\"repeats\":{}}}", values[0], values[n - 1], n);
}

pub fn main(cases: Cases) {
    let (mut quick, mut list, mut repeats, mut words) = (false, false, 0, vec![]);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--quick" => quick = true,
            "--list" => list = true,
            "--json" => (),
            "--repeats" => repeats = args.next().and_then(|n| n.parse().ok()).expect("--repeats N"),
            _ => words.push(a),
        }
    }
    if words.len() == 2 && words[0] == "echo" {
        crate::join::echo(words[1].parse().expect("a port"));
    }
    let mut found = list;
    for case in &cases.0 {
        if list {
            println!("{} {}", case.name, case.variant);
        } else if words.first().map_or(false, |w| w == case.name) && words.get(1).map_or(true, |v| *v == case.variant) {
            found = true;
            measure(case, quick, repeats);
        }
    }
    if !found {
        eprintln!("usage: tokio-peer --list | NAME [VARIANT] [--quick] [--repeats N] | echo PORT");
        std::process::exit(2);
    }
}
