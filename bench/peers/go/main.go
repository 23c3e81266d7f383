// SPDX-License-Identifier: MIT
//
// The workloads of weft-bench in Go. Called as `go-peer NAME VARIANT [--quick]
// [--repeats N]`, or --list; prints JSON lines like weft-bench.
package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// What one run measured; NaN is left out of the output.
type sample struct {
	n                           int
	value                       float64
	p50us, p90us, p99us, rssMiB float64
}

type bench struct {
	name, variant, unit string
	workers             int
	repeats             int
	run                 func() sample
	noWarmUp            bool
}

var quick bool

func check(ok bool, what string) {
	if !ok {
		fmt.Fprintln(os.Stderr, "check failed:", what)
		os.Exit(1)
	}
}

func perOp(n int, t time.Time) sample {
	return sample{n: n, value: float64(time.Since(t).Nanoseconds()) / float64(n)}
}

func percentile(v []float64, p float64) float64 {
	sort.Float64s(v)
	i := int(float64(len(v)) * p)
	if i >= len(v) {
		i = len(v) - 1
	}
	return v[i]
}

// A sleep that the Go scheduler has no part in.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&ts, &ts) != nil {
	}
}

func resident() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	check(err == nil, "statm")
	pages, _ := strconv.ParseFloat(strings.Fields(string(b))[1], 64)
	return pages * float64(os.Getpagesize())
}

// --- spawn ---

func spawn() sample {
	const n = 100000
	var wg sync.WaitGroup
	t := time.Now()
	wg.Add(n)
	for i := 0; i < n; i++ {
		go wg.Done()
	}
	wg.Wait()
	return perOp(n, t)
}

// Go has no thread outside of its runtime: a goroutine locked to a thread is the nearest.
func spawnExternal() sample {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return spawn()
}

func flood(locked bool) func() sample {
	return func() sample {
		const spawners, every = 8, 64
		each := 1000000 / spawners / every * every
		if quick {
			each /= 10
			each = each / every * every
		}
		waited := make([]float64, spawners*each/every)
		var wg sync.WaitGroup
		wg.Add(spawners * each)
		start := make(chan struct{})
		for s := 0; s < spawners; s++ {
			slots := waited[s*each/every : (s+1)*each/every]
			go func() {
				if locked {
					runtime.LockOSThread()
				}
				<-start
				for i := 0; i < each; i++ {
					if i%every == every-1 {
						slot := &slots[i/every]
						t := time.Now()
						go func() { *slot = float64(time.Since(t).Nanoseconds()) / 1e3; wg.Done() }()
					} else {
						go wg.Done()
					}
				}
			}()
		}
		t := time.Now()
		close(start)
		wg.Wait()
		el := time.Since(t)
		return sample{n: spawners * each, value: float64(spawners*each) / el.Seconds() / 1e6,
			rssMiB: resident() / (1 << 20), p50us: percentile(waited, 0.5),
			p90us: percentile(waited, 0.9), p99us: percentile(waited, 0.99)}
	}
}

func link(done chan struct{}, left int) {
	if left == 1 {
		done <- struct{}{}
	} else {
		go link(done, left-1)
	}
}

func chain(depth int) func() sample {
	return func() sample {
		done := make(chan struct{}, 1)
		t := time.Now()
		go link(done, depth)
		<-done
		return perOp(depth, t)
	}
}

// --- switch ---

const pairs = 1000

func pingPongAll() sample {
	var wg sync.WaitGroup
	wg.Add(pairs)
	t := time.Now()
	go func() {
		for i := 0; i < pairs; i++ {
			go func() {
				ping, pong := make(chan struct{}, 1), make(chan struct{}, 1)
				go func() { <-ping; pong <- struct{}{} }()
				ping <- struct{}{}
				<-pong
				wg.Done()
			}()
		}
	}()
	wg.Wait()
	return perOp(pairs, t)
}

func pingPongSeq() sample {
	t := time.Now()
	for i := 0; i < pairs; i++ {
		ping, pong := make(chan struct{}, 1), make(chan struct{}, 1)
		var wg sync.WaitGroup
		wg.Add(2)
		go func() { <-ping; pong <- struct{}{}; wg.Done() }()
		go func() { ping <- struct{}{}; <-pong; wg.Done() }()
		wg.Wait()
	}
	return perOp(pairs, t)
}

func yieldMany() sample {
	const tasks, yields = 200, 1000
	var wg sync.WaitGroup
	wg.Add(tasks)
	t := time.Now()
	for i := 0; i < tasks; i++ {
		go func() {
			for j := 0; j < yields; j++ {
				runtime.Gosched()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	return perOp(tasks*yields, t)
}

// --- sync ---

func mutexAlone() sample {
	const n = 1000000
	var m sync.Mutex
	x := 0
	t := time.Now()
	for i := 0; i < n; i++ {
		m.Lock()
		x++
		m.Unlock()
	}
	s := perOp(n, t)
	check(x == n, "mutex")
	return s
}

func mutexShared() sample {
	const tasks, each = 8, 100000
	var m sync.Mutex
	var wg sync.WaitGroup
	x := 0
	wg.Add(tasks)
	t := time.Now()
	for k := 0; k < tasks; k++ {
		go func() {
			for i := 0; i < each; i++ {
				m.Lock()
				x++
				m.Unlock()
			}
			wg.Done()
		}()
	}
	wg.Wait()
	s := perOp(tasks*each, t)
	check(x == tasks*each, "mutex")
	return s
}

// Which ends are goroutines locked to a thread.
type locked struct{ tx, rx bool }

func lockIf(yes bool) {
	if yes {
		runtime.LockOSThread()
	}
}

func channel(capacity, ends int, lock locked) func() sample {
	return func() sample {
		items := 1000000
		if quick {
			items /= 10
		}
		ch := make(chan uint64, capacity)
		var tx, rx sync.WaitGroup
		var sum, got uint64
		tx.Add(ends)
		rx.Add(ends)
		t := time.Now()
		for k := 0; k < ends; k++ {
			first := k * items / ends
			go func() {
				lockIf(lock.tx)
				for i := first; i < first+items/ends; i++ {
					ch <- uint64(i)
				}
				tx.Done()
			}()
			go func() {
				var n, s uint64
				lockIf(lock.rx)
				for v := range ch {
					n++
					s += v
				}
				atomic.AddUint64(&got, n)
				atomic.AddUint64(&sum, s)
				rx.Done()
			}()
		}
		tx.Wait()
		close(ch)
		rx.Wait()
		s := perOp(items, t)
		n := uint64(items)
		check(got == n && sum == n*(n-1)/2, "every item came once")
		return s
	}
}

func selectFour() sample {
	items := 1000000
	if quick {
		items /= 10
	}
	var ch [4]chan uint64
	t := time.Now()
	for k := range ch {
		c := make(chan uint64, 128)
		ch[k] = c
		go func() {
			for i := 0; i < items/4; i++ {
				c <- uint64(i)
			}
			close(c)
		}()
	}
	got, open := 0, 4
	a, b, c, d := ch[0], ch[1], ch[2], ch[3]
	for open > 0 {
		var ok bool
		select {
		case _, ok = <-a:
			if !ok {
				a = nil
			}
		case _, ok = <-b:
			if !ok {
				b = nil
			}
		case _, ok = <-c:
			if !ok {
				c = nil
			}
		case _, ok = <-d:
			if !ok {
				d = nil
			}
		}
		if ok {
			got++
		} else {
			open--
		}
	}
	s := perOp(items, t)
	check(got == items, "select")
	return s
}

// --- time ---

func timerLifecycle(n int) func() sample {
	return func() sample {
		rounds := 1
		if n < 100000 {
			rounds = 200000 / n
		}
		timers := make([]*time.Timer, n)
		f := func() {}
		var total time.Duration
		for k := 0; k < rounds; k++ {
			t := time.Now()
			for i := range timers {
				timers[i] = time.AfterFunc(24*time.Hour, f)
			}
			for i := range timers {
				timers[i].Stop()
			}
			total += time.Since(t)
		}
		return sample{n: n * rounds, value: float64(total.Nanoseconds()) / float64(n*rounds)}
	}
}

func sleepPrecision() sample {
	sleeps := 20
	if quick {
		sleeps = 5
	}
	over := 0.0
	for i := 0; i < sleeps; i++ {
		t := time.Now()
		time.Sleep(100 * time.Millisecond)
		over += time.Since(t).Seconds()*1e3 - 100
	}
	return sample{n: sleeps, value: over * 20 / float64(sleeps)}
}

func wakeLatency() sample {
	n := 2000
	if quick {
		n /= 4
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	base := time.Now()
	waited := make([]float64, n)
	for i := range waited {
		ch := make(chan struct{}, 1)
		var ran int64
		go func() { <-ch; atomic.StoreInt64(&ran, int64(time.Since(base))) }()
		nap(200 * time.Microsecond)
		t0 := int64(time.Since(base))
		ch <- struct{}{}
		nap(200 * time.Microsecond)
		for atomic.LoadInt64(&ran) == 0 {
			nap(50 * time.Microsecond)
		}
		waited[i] = float64(ran-t0) / 1e3
	}
	p50, p99 := percentile(waited, 0.5), percentile(waited, 0.99)
	return sample{n: n, value: p50, p50us: p50, p99us: p99}
}

// --- memory, idle ---

func memory(n int) func() sample {
	return func() sample {
		ch := make(chan struct{})
		var parked, woken int64
		var wg sync.WaitGroup
		wg.Add(n)
		runtime.GC()
		before := resident()
		for i := 0; i < n; i++ {
			go func() { atomic.AddInt64(&parked, 1); <-ch; atomic.AddInt64(&woken, 1); wg.Done() }()
		}
		for atomic.LoadInt64(&parked) < int64(n) {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		s := sample{n: n, value: (resident() - before) / float64(n)}
		close(ch)
		wg.Wait()
		check(woken == int64(n), "every goroutine was woken once")
		return s
	}
}

// Prints "ready" and sleeps; bench/run counts the context switches.
func idle() sample {
	done := make(chan bool)
	go func() { time.Sleep(10 * time.Second); done <- true }()
	fmt.Println("ready")
	<-done
	return sample{n: 1}
}

// --- handoff: a request with its own reply channel ---

type request struct {
	value uint64
	reply chan uint64
}

func serve(ch chan request) {
	for r := range ch {
		r.reply <- r.value + 1
	}
}

func call(ch chan request, v uint64) {
	r := request{v, make(chan uint64, 1)}
	ch <- r
	check(<-r.reply == v+1, "reply")
}

func handoffOne() sample {
	n := 20000
	if quick {
		n /= 4
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ch := make(chan request, 128)
	go serve(ch)
	waited := make([]float64, n)
	for i := range waited {
		t := time.Now()
		call(ch, uint64(i))
		waited[i] = float64(time.Since(t).Nanoseconds()) / 1e3
	}
	close(ch)
	p50, p99 := percentile(waited, 0.5), percentile(waited, 0.99)
	return sample{n: n, value: p50, p50us: p50, p99us: p99}
}

func handoffEight(locked bool) func() sample {
	return func() sample {
		const senders = 8
		each := 10000
		if quick {
			each /= 4
		}
		var wg sync.WaitGroup
		wg.Add(senders)
		t := time.Now()
		for k := 0; k < senders; k++ {
			ch := make(chan request, 128)
			go serve(ch)
			go func() {
				if locked {
					runtime.LockOSThread()
				}
				for i := 0; i < each; i++ {
					call(ch, uint64(i))
				}
				close(ch)
				wg.Done()
			}()
		}
		wg.Wait()
		return sample{n: senders * each, value: float64(senders*each) / time.Since(t).Seconds() / 1e3}
	}
}

// --- fork_join, block_on ---

func fib(n int) int {
	if n < 2 {
		return n
	}
	var a int
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { a = fib(n - 1); wg.Done() }()
	b := fib(n - 2)
	wg.Wait()
	return a + b
}

func forkJoin() sample {
	n, spawns, want := 30, 1346268, 832040
	if quick {
		n, spawns, want = 25, 121392, 75025
	}
	t := time.Now()
	got := fib(n)
	s := perOp(spawns, t)
	check(got == want, "fib")
	return s
}

func spawnJoin() sample {
	const n = 200000
	t := time.Now()
	for i := 0; i < n; i++ {
		c := make(chan struct{}, 1)
		go func() { c <- struct{}{} }()
		<-c
	}
	return perOp(n, t)
}

func benches() []bench {
	var all []bench
	add := func(name, variant, unit string, workers, repeats int, run func() sample) {
		all = append(all, bench{name: name, variant: variant, unit: unit, workers: workers, repeats: repeats, run: run})
	}
	add("spawn_local", "1w", "ns", 1, 9, spawn)
	add("spawn_external", "2w", "ns", 2, 9, spawnExternal)
	add("spawn_internal", "2w", "ns", 2, 9, spawn)
	add("spawn_flood", "outside", "M/s", 2, 5, flood(true))
	add("spawn_flood", "inside", "M/s", 2, 5, flood(false))
	for _, w := range []int{1, 2} {
		sw := fmt.Sprintf("%dw", w)
		add("chained_spawn", "1000/"+sw, "ns", w, 25, chain(1000))
		add("chained_spawn", "10000/"+sw, "ns", w, 25, chain(10000))
		add("ping_pong", "all/"+sw, "ns", w, 25, pingPongAll)
		add("ping_pong", "seq/"+sw, "ns", w, 9, pingPongSeq)
		add("yield_many", sw, "ns", w, 9, yieldMany)
		add("mutex", "8x/"+sw, "ns", w, 9, mutexShared)
		for _, c := range []int{0, 1, 128} {
			add("channel", fmt.Sprintf("cap%d/%s", c, sw), "ns", w, 5, channel(c, 1, locked{}))
		}
		add("channel", "cap128/4x4/"+sw, "ns", w, 5, channel(128, 4, locked{}))
		add("select", "4/"+sw, "ns", w, 5, selectFour)
		add("sleep_precision", sw, "ms", w, 3, sleepPrecision)
		add("wake_latency", sw, "us", w, 5, wakeLatency)
		add("handoff", "1x1/"+sw, "us", w, 5, handoffOne)
		add("fork_join", sw, "ns", w, 5, forkJoin)
	}
	add("channel", "cap128/thread_to_fiber", "ns", 2, 5, channel(128, 1, locked{tx: true}))
	add("channel", "cap128/fiber_to_thread", "ns", 2, 5, channel(128, 1, locked{rx: true}))
	add("mutex", "uncontended", "ns", 2, 9, mutexAlone)
	for _, n := range []int{64, 1024, 100000} {
		add("timer_lifecycle", strconv.Itoa(n), "ns", 2, 9, timerLifecycle(n))
	}
	for _, n := range []int{100000, 1000000} {
		add("memory", strconv.Itoa(n), "bytes", 2, 1, memory(n))
	}
	add("idle", "4w", "switches", 4, 1, idle)
	add("handoff", "8x8/threads", "k/s", 2, 5, handoffEight(true))
	add("handoff", "8x8/tasks", "k/s", 2, 5, handoffEight(false))
	add("block_on", "spawn_join", "ns", 1, 9, spawnJoin)
	for i := range all {
		all[i].noWarmUp = all[i].name == "memory" || all[i].name == "idle" || all[i].name == "sleep_precision"
	}
	return all
}

func measure(b bench, repeats int) {
	runtime.GOMAXPROCS(b.workers)
	if repeats == 0 {
		repeats = b.repeats
		if quick && repeats > 3 {
			repeats = 3
		}
	}
	if !b.noWarmUp {
		b.run()
	}
	var values, p50, p90, p99, rss []float64
	n := 0
	for i := 0; i < repeats; i++ {
		runtime.GC()
		s := b.run()
		n = s.n
		values = append(values, s.value)
		p50, p90, p99 = append(p50, s.p50us), append(p90, s.p90us), append(p99, s.p99us)
		rss = append(rss, s.rssMiB)
	}
	median := percentile(values, 0.5)
	fmt.Printf(`{"name":"%s","variant":"%s","n":%d,"unit":"%s","value":%.4g`, b.name, b.variant, n, b.unit, median)
	for _, f := range []struct {
		key string
		v   []float64
	}{{"p50_us", p50}, {"p90_us", p90}, {"p99_us", p99}, {"rss_mib", rss}} {
		if m := percentile(f.v, 0.5); m != 0 && !math.IsNaN(m) {
			fmt.Printf(`,"%s":%.4g`, f.key, m)
		}
	}
	fmt.Printf(`,"min":%.4g,"max":%.4g,"repeats":%d}`+"\n", values[0], values[len(values)-1], repeats)
}

func main() {
	debug.SetGCPercent(100)
	var words []string
	repeats := 0
	list := false
	for i := 1; i < len(os.Args); i++ {
		switch a := os.Args[i]; a {
		case "--quick":
			quick = true
		case "--list":
			list = true
		case "--json":
		case "--repeats":
			i++
			repeats, _ = strconv.Atoi(os.Args[i])
		default:
			words = append(words, a)
		}
	}
	if len(words) > 0 && words[0] == "echo" {
		check(len(words) == 2, "usage: go-peer echo PORT")
		echo(words[1])
	}
	if len(words) > 0 && words[0] == "http" {
		check(len(words) == 4, "usage: go-peer http PORT ROOT WORKERS")
		workers, _ := strconv.Atoi(words[3])
		serveFiles(words[1], words[2], workers)
	}
	found := false
	for _, b := range benches() {
		if list {
			fmt.Println(b.name, b.variant)
		} else if len(words) > 0 && b.name == words[0] && (len(words) < 2 || b.variant == words[1]) {
			found = true
			measure(b, repeats)
		}
	}
	if !list && !found {
		fmt.Fprintln(os.Stderr, "usage: go-peer --list | NAME [VARIANT] [--quick] [--repeats N] | echo PORT | http PORT ROOT WORKERS")
		os.Exit(2)
	}
}
