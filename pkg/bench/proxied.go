package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// envoyName stands for the Envoy among the processes measured.
const envoyName = "envoy"

// proxied asks one target through an Envoy: a closed loop of HTTP/1.1 requests, one under way on each connection.
type proxied struct {
	target  Target
	options Options
	expect  expectation
	envoy   *envoyProcess
	clients []*httpClient
}

// newProxied starts the Envoy and connects to it.
func newProxied(ctx context.Context, target Target, options Options, expect expectation) (*proxied, error) {
	envoy, err := startEnvoy(ctx, *options.Envoy, target.Address, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", options.Envoy.Path, err)
	}
	p := &proxied{target: target, options: options, expect: expect, envoy: envoy}
	for i := range options.Connections {
		client := &httpClient{
			address: envoy.address, timeout: options.Timeout + time.Second, workload: options.Workload,
			random: rand.New(rand.NewPCG(options.Seed, uint64(i))), //nolint:gosec // loads are to be repeatable
		}
		p.clients = append(p.clients, client)
		if err := client.dial(ctx); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *proxied) close() {
	for _, client := range p.clients {
		client.close()
	}
	p.envoy.close()
}

// run makes requests on all connections until stop is called; next draws what a client asks for, and reports false when it is
// done. Once every client is done, ended is closed.
func (p *proxied) run(ctx context.Context, expect expectation, next func(client int) (first, second int, ok bool)) (ended <-chan struct{}, stop func() error) {
	var running sync.WaitGroup
	var stopped atomic.Bool
	var failure atomic.Pointer[error]
	for i, client := range p.clients {
		running.Go(func() {
			for !stopped.Load() {
				first, second, ok := next(i)
				if !ok {
					return
				}
				if err := client.ask(ctx, expect, first, second); err != nil {
					failure.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	return done, func() error {
		stopped.Store(true)
		<-done
		if err := failure.Load(); err != nil {
			return *err
		}
		return nil
	}
}

// prime asks for every key once.
func (p *proxied) prime(ctx context.Context) error {
	var keys atomic.Int64
	ended, stop := p.run(ctx, expectation{}, func(int) (first, second int, ok bool) {
		first = int(keys.Add(1)) - 1
		return first, (first + 1) % p.options.Workload.Keys, first < p.options.Workload.Keys
	})
	select {
	case <-ended:
	case <-ctx.Done():
	}
	if err := errors.Join(stop(), context.Cause(ctx)); err != nil {
		return err
	}
	faults := p.take().faults
	return faults.err(p.target, p.options.Workload.Keys)
}

func (p *proxied) take() *tally {
	sum := new(tally)
	for _, client := range p.clients {
		client.mu.Lock()
		sum.add(&client.tally)
		client.tally = tally{}
		client.mu.Unlock()
	}
	return sum
}

// turn is one round.
func (p *proxied) turn(ctx context.Context, _ int, show func(phase string, calls uint64, over time.Duration)) (_ *Round, err error) {
	ended, stop := p.run(ctx, p.expect, func(client int) (first, second int, ok bool) {
		first, second = p.clients[client].draw()
		return first, second, true
	})
	defer func() { err = errors.Join(stop(), err) }()
	if err := p.watch(ctx, ended, p.options.Warmup, "warming up", show); err != nil {
		return nil, err
	}
	meters, err := openMeters(append([]Process{{envoyName, p.envoy.pid}}, p.target.Processes...))
	if err != nil {
		return nil, err
	}
	warm := p.take()
	began := now()
	before, err := meters.read()
	if err != nil {
		return nil, err
	}
	if err := p.watch(ctx, ended, p.options.Duration, "measuring", show); err != nil {
		return nil, err
	}
	after, err := meters.read()
	if err != nil {
		return nil, err
	}
	lasted := time.Duration(now() - began)
	seen := p.take()
	if err := stop(); err != nil {
		return nil, err
	}
	seen.faults.merge(&warm.faults)
	seen.faults.merge(&p.take().faults)
	used := meters.since(before, after)
	envoy := used[envoyName]
	delete(used, envoyName)
	round := newRound(seen, lasted, used)
	if round.Calls > 0 {
		round.Envoy = microseconds(envoy) / float64(round.Calls)
	}
	return round, nil
}

// watch lets time pass and shows how it goes.
func (p *proxied) watch(ctx context.Context, ended <-chan struct{}, d time.Duration, phase string, show func(string, uint64, time.Duration)) error {
	began := now()
	for {
		left := d - time.Duration(now()-began)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(min(left, tick))
		select {
		case <-timer.C:
		case <-ended:
			return errAllFailed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var calls uint64
		for _, client := range p.clients {
			client.mu.Lock()
			calls += client.tally.calls()
			client.mu.Unlock()
		}
		show(phase, calls, time.Duration(now()-began))
	}
}

var errAllFailed = errors.New("all connections to Envoy ended")

// httpClient is a connection to Envoy.
type httpClient struct {
	address  string
	timeout  time.Duration
	workload Workload
	random   *rand.Rand

	conn   net.Conn
	reader *bufio.Reader
	out    []byte
	barren int // connections in a row that ended before an answer

	mu    sync.Mutex
	tally tally
}

func (c *httpClient) dial(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("connect to Envoy: %w", err)
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
	return nil
}

func (c *httpClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// draw chooses the keys of a request.
func (c *httpClient) draw() (first, second int) {
	first = c.random.IntN(c.workload.Keys)
	if c.workload.Kind == Three {
		if second = c.random.IntN(c.workload.Keys - 1); second >= first {
			second++
		}
	}
	return first, second
}

// ask makes a request and checks its answer. An error means that Envoy is away; what is wrong with the answer is a fault.
func (c *httpClient) ask(ctx context.Context, expect expectation, first, second int) error {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return err
		}
	}
	c.out = append(c.out[:0], "GET / HTTP/1.1\r\nHost: bench\r\n"...)
	c.out = appendKey(c.out, firstHeader, first)
	if c.workload.Kind == Three {
		c.out = appendKey(c.out, secondHeader, second)
	}
	c.out = append(c.out, "\r\n"...)
	began := now()
	status, err := c.exchange()
	took := time.Duration(now() - began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.close()
		fault := FaultLost
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			fault = FaultTimeout
		}
		c.tally.faults.add(fault, "%v", err)
		if c.barren++; c.barren >= maxBarren {
			return fmt.Errorf("envoy ended %d connections in a row without an answer: %w", c.barren, err)
		}
		return nil
	}
	c.barren = 0
	var code uint64
	switch status {
	case 200:
		code = codeOK
	case 429:
		code = codeOverLimit
	default:
		c.tally.faults.add(FaultStatus, "HTTP status %d: Envoy got no decision", status)
		return nil
	}
	if expect.code != 0 && code != expect.code {
		c.tally.faults.add(FaultCode, "HTTP status %d, which is %s instead of %s", status, codeName(code), expect)
		return nil
	}
	if code == codeOK {
		c.tally.allowed++
	} else {
		c.tally.denied++
	}
	c.tally.latency.Record(took)
	return nil
}

func appendKey(dst []byte, name string, value int) []byte {
	dst = append(append(dst, name...), ": "...)
	for place := 10_000_000; place > 0; place /= 10 { // valueDigits of them
		dst = append(dst, byte('0'+value/place%10))
	}
	return append(dst, "\r\n"...)
}

var errNotHTTP = errors.New("the answer is not one of HTTP/1.1 with a content-length")

// exchange sends what is in out and reads the answer. It returns the status.
func (c *httpClient) exchange() (int, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, err
	}
	status, length := 0, -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if status == 0 {
			if len(line) < 12 || string(line[:9]) != "HTTP/1.1 " {
				return 0, errNotHTTP
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, errNotHTTP
			}
			continue
		}
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && string(name) == "content-length" {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, errNotHTTP
			}
		}
	}
	if length < 0 {
		return 0, errNotHTTP
	}
	_, err := io.CopyN(io.Discard, c.reader, int64(length))
	return status, err
}
