package chaingql

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A storedStream has stored blocks without end. Each call of next takes a millisecond or another time, and returns a
// block if found is true.
type storedStream struct {
	stream
	found   bool
	live    bool
	takes   time.Duration // instead of a millisecond, unless 0
	reading *readers
}

// readers counts calls of next.
type readers struct{ all, now, most atomic.Int64 }

func (s *storedStream) next() ([]byte, error) {
	s.reading.all.Add(1)
	now := s.reading.now.Add(1)
	s.reading.most.Store(max(now, s.reading.most.Load()))
	time.Sleep(cmp.Or(s.takes, time.Millisecond))
	s.reading.now.Add(-1)
	if s.found {
		return []byte("{}"), nil
	}
	return nil, nil
}

func (s *storedStream) behind() bool                { return !s.live }
func (s *storedStream) more() bool                  { return true }
func (s *storedStream) id() string                  { return "1" }
func (s *storedStream) cursor() string              { return "1" }
func (s *storedStream) position() (string, *ending) { return "1", nil }

func twoTurns() eventTurns { return eventTurnsOf(2) }

// storedStreams returns n streams of stored blocks, and counts of those that read.
func storedStreams(turns eventTurns, n int, found bool) (all []*eventStream, reading *readers) {
	reading = new(readers)
	for range n {
		all = append(all, &eventStream{
			stream: &storedStream{found: found, reading: reading}, turns: turns,
			peer: newPeer(), client: context.Background(), credentials: context.Background(),
		})
	}
	return all, reading
}

// read has a number of turns.
func (s *eventStream) read(turns int) {
	for range turns {
		for e, err := s.Next(); e.Data != nil && err == nil; {
			e, err = s.Next()
		}
		s.Pause()
	}
}

func TestEventStreamsTakeTurnsToReadStoredBlocks(t *testing.T) {
	for _, found := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			all, reading := storedStreams(twoTurns(), 50, found)
			var wg sync.WaitGroup
			for _, s := range all {
				wg.Go(func() { s.read(3) })
			}
			wg.Wait()
			if most := reading.most.Load(); most > 4 { // two in their first turn, and two in later ones
				t.Errorf("%d streams read stored blocks at the same time", most)
			}
		})
	}
}

// readWithin fails the test if the turns of a stream take longer than most.
func readWithin(t *testing.T, most time.Duration, s *eventStream, turns int) {
	t.Helper()
	begun := time.Now()
	s.read(turns)
	if took := time.Since(begun); took > most {
		t.Errorf("%d turns took %s", turns, took)
	}
}

func TestEventStreamsThatResumeDoNotWaitForOthers(t *testing.T) {
	for _, others := range []struct {
		name  string
		found bool
		once  time.Duration // after which all have had one turn
		turns int           // of the stream that resumes
	}{
		{"that search", false, 300 * time.Millisecond, 3},
		{"that find blocks", true, 600 * time.Millisecond, 1},
	} {
		t.Run(others.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := twoTurns()
				streams, _ := storedStreams(turns, 500, others.found)
				var wg sync.WaitGroup
				defer wg.Wait()
				for _, s := range streams {
					wg.Go(func() { s.read(3) })
				}
				time.Sleep(others.once)
				resumes, _ := storedStreams(turns, 1, true)
				readWithin(t, 10*time.Millisecond, resumes[0], others.turns)
			})
		})
	}
}

// Clients that start streams again and again must not get much more time than others.
func TestFirstTurnOfEventStreamIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams, reading := storedStreams(twoTurns(), 1, true)
		streams[0].stream.(*storedStream).takes = 60 * time.Microsecond
		for i, want := range []int64{2, 2 + 17} { // the second turn takes a millisecond
			if streams[0].read(1); reading.all.Load() != want {
				t.Errorf("%d blocks were read in %d turns, want %d", reading.all.Load(), i+1, want)
			}
		}
	})
}

// A client that needs few blocks does not wait for those that have read many, even if these all have blocks to read.
func TestEventStreamsThatNeedLittleDoNotWaitForThoseThatReadMuch(t *testing.T) {
	for name, found := range map[string]bool{"that search": false, "that find blocks": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := twoTurns()
				streams, _ := storedStreams(turns, 50, found)
				var wg sync.WaitGroup
				defer wg.Wait()
				for _, s := range streams {
					wg.Go(func() { s.read(30) })
				}
				time.Sleep(600 * time.Millisecond) // each has read for 20 ms or more
				needsLittle, _ := storedStreams(turns, 1, found)
				readWithin(t, 15*time.Millisecond, needsLittle[0], 5)
			})
		})
	}
}

// A client that has read some thousand blocks does not wait for those that have read ten times as many.
func TestEventStreamsThatReadMuchDoNotWaitForThoseThatReadMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := twoTurns()
		streams, _ := storedStreams(turns, 50, true)
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, s := range streams {
			s.peer.turns.Add(2 * xsync.MoreUsage)
			wg.Go(func() { s.read(30) })
		}
		time.Sleep(100 * time.Millisecond)
		some, _ := storedStreams(turns, 1, true)
		some[0].peer.turns.Add(2 * xsync.MuchUsage)
		readWithin(t, 15*time.Millisecond, some[0], 5)
	})
}

// A client can end its event streams and start others on the same connection, again and again.
func TestEventStreamsThatStartAgainAndAgainDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, done := twoTurns(), make(chan struct{})
		var peers [5]*peer // with ten streams each
		for i := range peers {
			peers[i] = newPeer()
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range 50 {
			wg.Go(func() {
				for {
					streams, _ := storedStreams(turns, 1, true)
					streams[0].peer = peers[i%len(peers)]
					streams[0].read(4)
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		time.Sleep(600 * time.Millisecond)
		needsLittle, _ := storedStreams(turns, 1, true)
		readWithin(t, 45*time.Millisecond, needsLittle[0], 5)
		close(done)
	})
}

// After a burst of blocks, live streams read blocks that were new while they wrote others.
func TestEventStreamsThatWereLiveDoNotWaitForOthers(t *testing.T) {
	for name, found := range map[string]bool{"that search": false, "that find blocks": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := twoTurns()
				streams, _ := storedStreams(turns, 500, found)
				var wg sync.WaitGroup
				defer wg.Wait()
				for _, s := range streams {
					wg.Go(func() { s.read(3) })
				}
				for _, wait := range []time.Duration{0, 600 * time.Millisecond} { // after that, all have had one turn
					time.Sleep(wait)
					was, _ := storedStreams(turns, 1, true)
					blocks := was[0].stream.(*storedStream)
					blocks.live = true
					if _, err := was[0].Next(); err != nil {
						t.Fatal(err)
					}
					blocks.live = false
					readWithin(t, 15*time.Millisecond, was[0], 5)
				}
			})
		})
	}
}

func TestEventStreamsThatEndDoNotReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := twoTurns()
		others, _ := storedStreams(turns, 2, true)
		for _, s := range others {
			if _, err := s.Next(); err != nil { // the turn lasts until Pause
				t.Fatal(err)
			}
		}
		all, reading := storedStreams(turns, 2, true)
		left, shutDown := all[0], all[1]
		ctx, leave := context.WithCancel(context.Background())
		left.client, left.credentials = ctx, ctx
		ended := make(chan *eventStream)
		for _, s := range all {
			go func() {
				if _, err := s.Next(); err == nil {
					t.Error("a stream did not end")
				}
				s.Pause()
				ended <- s
			}()
		}
		synctest.Wait()
		leave()
		if s := <-ended; s != left {
			t.Error("a stream ended before its turn")
		}
		shutDown.leaving.Store(true)
		others[0].Pause()
		<-ended
		others[1].Pause()
		if n := reading.all.Load(); n > 0 {
			t.Errorf("read %d times", n)
		}
	})
}

// A stream that must end may wait for its turn with thousands of others. Most of them must end soon, too.
func TestShutdownDoesNotWaitUntilAllEventStreamsHaveReadBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, limit = 3000, 2 * time.Second // to read once takes 1.5 s for all of them
		all, _ := storedStreams(twoTurns(), streams, true)
		gate := xsync.NewGate(0)
		cut := 0
		for _, s := range all {
			gate.Enter()
			go func() {
				defer gate.Leave()
				defer gate.Stay(func() { s.leaving.Store(true) }, func() { cut++ })()
				for err := error(nil); err == nil; s.Pause() {
					_, err = s.Next()
				}
			}()
		}
		time.Sleep(limit)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		begun := time.Now()
		if err := gate.Close(ctx); err != nil || cut > 0 {
			t.Errorf("%d streams received no last event: %v", cut, err)
		}
		if took := time.Since(begun); took > limit/2+10*time.Millisecond {
			t.Errorf("the last stream ended after %s, although all were asked within %s", took, limit/2)
		}
		synctest.Wait()
	})
}
