package tonlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// The minimum and maximum time for which a server is not used after a failure. The time doubles
// with each failure.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// lieBackoff is the time for which a server is not used after it has provably named a forged block. It is long because
// each such block may cost as much as a hundred pages: a readable block must be parsed before its successor shows that
// it is forged.
const lieBackoff = 10 * time.Minute

const (
	maxLag   = 64  // maximum number of blocks that a server may lag
	maxCause = 300 // maximum length of the text of a failure, in characters
)

// A server is a lite server in the configuration. It may be connected or not.
type server struct {
	peer
	zero    hashes
	timeout time.Duration
	netDial dialFunc
	window  lite.Window // responses that are not parsed yet

	mu          sync.Mutex
	client      *lite.Client // the last connection, which may be lost
	dialing     *dialAttempt // the attempt to connect that is in progress, or nil
	retryAt     time.Time    // the server is not used before this time
	convicted   time.Time    // until this time, no failure changes retryAt
	backoff     time.Duration
	cause       error         // error of the last failure, as a text of bounded length
	lastSuccess time.Time     // time of the last valid response
	lastLag     time.Time     // when the server last responded that it lags
	head        uint32        // seq_no of the newest masterchain block that the server has announced
	moved       time.Time     // when the server announced it
	overtaken   time.Time     // when a Follow last found that the server reports new blocks late
	latency     time.Duration // moving average of the time until a response, see servers.query; 0 if none
	unproved    unprovedBlocks
	lackUntil   [ages]time.Time // by age of the block: see lack
	oldest      uint32          // seq_no of the oldest old block that it sent, or 0: see lacks
}

// An unprovedBlocks stands for the masterchain blocks that a server has failed to prove, while others do not have
// them.
type unprovedBlocks struct {
	newest  uint32        // seq_no of the newest of them
	last    time.Time     // last failure
	failing time.Duration // sum of the times between failures, of which each counts as at most 15 seconds
}

// A dialAttempt is an attempt to connect that concurrent callers share. When done is closed,
// client or err is set.
type dialAttempt struct {
	done   chan struct{}
	client *lite.Client
	err    error
}

var errNetwork = errors.New("the server belongs to another network than the configuration")

// connect returns the open connection or, if there is none, dials the server. Concurrent callers
// share one attempt to connect. The attempt runs in group until life is done, so it continues
// even if the ctx of a caller is done.
func (s *server) connect(ctx context.Context, life context.Context, group *sync.WaitGroup) (*lite.Client, error) {
	s.mu.Lock()
	if s.isOpen() {
		defer s.mu.Unlock()
		return s.client, nil
	}
	if s.client != nil {
		err := s.client.Err()
		if s.client = nil; errors.Is(err, lite.ErrFlood) { // a failure, even if no call was waiting
			s.mu.Unlock()
			return nil, err
		}
	}
	d := s.dialing
	if d == nil {
		if err := life.Err(); err != nil {
			s.mu.Unlock()
			return nil, errClosed
		}
		d = &dialAttempt{done: make(chan struct{})}
		s.dialing = d
		group.Go(func() {
			var head uint32
			d.client, head, d.err = s.dial(life)
			s.mu.Lock()
			s.client, s.dialing = d.client, nil
			s.mu.Unlock()
			s.announce(head)
			close(d.done)
		})
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.client, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// isOpen reports whether there is an open connection. The caller holds s.mu.
func (s *server) isOpen() bool {
	if s.client == nil {
		return false
	}
	select {
	case <-s.client.Lost():
		return false
	default:
		return true
	}
}

// dial connects to the server and checks that the server belongs to the configured network. head
// is the seq_no of the server's newest masterchain block.
func (s *server) dial(ctx context.Context) (client *lite.Client, head uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := s.netDial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, 0, err
	}
	if client, err = lite.Connect(ctx, conn, s.key, &s.window); err != nil {
		return nil, 0, err
	}
	since := time.Now()
	answer, err := client.Ask(ctx, lite.GetMasterchainInfo{})
	s.observe(time.Since(since), err == nil)
	if err == nil {
		info, ok := answer.(lite.MasterchainInfo)
		switch {
		case !ok:
			err = errAnswer
		case s.zero != hashes{} && s.zero != hashes{info.ZeroRoot, info.ZeroFile}:
			err = errNetwork
		}
		head = info.Last.SeqNo
	}
	if err != nil {
		client.Close()
		return nil, 0, err
	}
	return client, head, nil
}

// announce records the seq_no of a masterchain block that the server says is its newest one.
func (s *server) announce(head uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if head > s.head {
		s.head, s.moved = head, time.Now()
	}
}

// mayReach reports whether it is plausible that the server only lags if it does not have the masterchain block with the
// given seq_no: the server is not far behind the head, and receives new blocks. A server that is stuck, or that has
// announced a later block, does not lag.
func (s *server) mayReach(seqNo, head uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head < seqNo && max(seqNo, head)-s.head <= maxLag && time.Since(s.moved) < time.Minute
}

// lags records that the server responded that it does not have a block yet.
func (s *server) lags() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastLag = time.Now()
}

// lagged is called if no server can prove the block that the server named in a response. It reports whether the server
// lags, as it said after the given time. If so, the server works, and may prove the block later.
func (s *server) lagged(after time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lastLag.After(after) {
		return false
	}
	s.lastSuccess = time.Now()
	return true
}

// height returns the seq_no of the newest masterchain block that the server has announced.
func (s *server) height() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

// observe adds the time of a response, or of an attempt to connect that failed, to the moving average. If answered is
// false, there was no response within that time.
func (s *server) observe(took time.Duration, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.latency == 0 && answered:
		s.latency = took
	case answered || s.latency > 0 && took > s.latency: // a refused connection does not make a server fast
		s.latency += (took - s.latency) / 8
	}
}

// usualLatency returns the moving average of the time until a response, or a quarter of the timeout
// if there was none yet.
func (s *server) usualLatency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latency == 0 {
		return s.timeout / 4
	}
	return s.latency
}

// backoffLeft returns how long the server must not be used, and the error that caused this. The
// time is 0 if the server may be used.
func (s *server) backoffLeft() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.retryAt)), s.cause
}

// An unusedError is returned if a server is not used for a while because of an earlier failure.
type unusedError struct {
	wait  time.Duration
	cause error
}

func (e unusedError) Error() string {
	return fmt.Sprintf("not used for %v after a failure: %v", e.wait.Round(time.Millisecond), e.cause)
}

// failed records a failure. It keeps only the beginning of the text of err, because err may quote the causes of other
// servers, which may quote this one.
func (s *server) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.convicted) {
		return
	}
	s.backoff = min(max(minBackoff, 2*s.backoff), maxBackoff)
	s.retryAt, s.cause = time.Now().Add(s.backoff), fmt.Errorf("%.*s", maxCause, err.Error())
	if errors.Is(err, errInvented) {
		s.lastSuccess = time.Time{} // it is not expected to have blocks that other servers do not have
	}
}

// convict records that err proves a lie of the server. It returns false if another lie is already recorded.
func (s *server) convict(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.convicted) {
		return false
	}
	s.convicted = time.Now().Add(lieBackoff)
	s.retryAt, s.cause, s.lastSuccess = s.convicted, err, time.Time{}
	return true
}

// succeeded records a valid response to q, or to a Follow if q is nil. If the server is not used at the moment, it has
// failed since it received q, and could send a wrong response for each valid one.
func (s *server) succeeded(q lite.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.retryAt) {
		return
	}
	s.backoff, s.retryAt, s.cause, s.lastSuccess = 0, time.Time{}, nil, time.Now()
	if seqNo, proven := masterLookup(q); proven && seqNo == s.unproved.newest { // not an older one: it may have a few
		s.unproved = unprovedBlocks{}
	}
}

// mayHave is called if the server failed to answer q, and others do not have the requested block. It reports whether
// the server may have that block: it sent a valid response in the last minute, and has not failed for a minute in total
// to prove blocks that are as old. Otherwise a server could hide the end of the history forever. head is the seq_no of
// the newest block.
func (s *server) mayHave(q lite.Message, head uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seqNo, _ := masterLookup(q); older(seqNo, head) {
		u, passed := &s.unproved, time.Since(s.unproved.last)
		if passed > 10*time.Minute {
			*u, passed = unprovedBlocks{}, 0
		}
		u.newest, u.last = max(u.newest, seqNo), time.Now()
		if u.failing += min(passed, 15*time.Second); u.failing >= time.Minute {
			return false
		}
	}
	return time.Since(s.lastSuccess) < time.Minute
}

// masterLookup returns the seq_no of the masterchain block that q looks up or reads, or that commits to the shard block
// which q reads, or 0. proven reports whether a valid response shows that the server has the block.
func masterLookup(q lite.Message) (seqNo uint32, proven bool) {
	wait, proven := q.(lite.Wait)
	if proven { // see Backend.readable
		q = wait.Then
	}
	switch q := q.(type) {
	case lite.LookupBlock:
		if q.Workchain == masterchain {
			return q.SeqNo, proven
		}
	case lite.GetBlock:
		if q.ID.Workchain == masterchain {
			return q.ID.SeqNo, true
		}
		return wait.SeqNo, true // of the masterchain block that commits to the shard block
	case lite.GetBlockHeader:
		return wait.SeqNo, true
	}
	return 0, false
}

// closeIfSilent closes a connection that has received nothing since the given time, because it
// may be dead without either side having noticed.
func (s *server) closeIfSilent(client *lite.Client, since time.Time) {
	if client.Heard().Before(since) {
		client.Close()
	}
}

func (s *server) close() {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
}
