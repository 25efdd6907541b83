package natschain_test

import (
	"bufio"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// newProcess starts a server in a separate process. It returns the server's URL, and a function that
// returns the processor time of the process in microseconds. That function works only on Linux.
func newProcess(b *testing.B) (url string, spent func() float64) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asBroker+"="+b.TempDir())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = stdin.Close() // makes the process end
		_ = cmd.Wait()
	})
	url, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(url), func() (sum float64) {
		threads, _ := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/*/schedstat")
		for _, name := range threads {
			text, _ := os.ReadFile(name) // nothing if the thread has ended
			if words := strings.Fields(string(text)); len(words) > 0 {
				ns, _ := strconv.ParseFloat(words[0], 64)
				sum += ns / 1e3
			}
		}
		return sum
	}
}

// BenchmarkSparse reads pages of 50 blocks from a chain of a million blocks, before and after old
// cursors. The cursors are close to each other ("near") or random ("anywhere"). For random cursors, the
// server must read files of 8 MB. The Backend must search for each cursor.
func BenchmarkSparse(b *testing.B) {
	url, spent := newProcess(b)
	ctx, all := context.Background(), uneven(million)
	w := writer(b, open(b, url, nil))
	for n := 0; n < million; n += 5000 {
		if err := w.Append(ctx, all[n:n+5000]...); err != nil {
			b.Fatal(err)
		}
	}
	backend := open(b, url, &natschain.Options{Timeout: time.Minute})
	rng := rand.New(rand.NewPCG(1, 2))
	workchain := func(w int32) *int32 { return &w }
	shard := func(s uint64) *uint64 { return &s }
	for _, row := range []struct {
		name string
		q    chaingql.BlocksQuery
	}{
		{"all", chaingql.BlocksQuery{}},
		{"masterchain", chaingql.BlocksQuery{Workchain: workchain(-1)}},
		{"base", chaingql.BlocksQuery{Workchain: workchain(0)}},
		{"oneOf16Shards", chaingql.BlocksQuery{Workchain: workchain(0), Shard: shard(1 << 59)}},
		{"shardOfAnyWorkchain", chaingql.BlocksQuery{Shard: shard(1 << 62)}},
		{"one300th", chaingql.BlocksQuery{Workchain: workchain(9)}},
		{"60Blocks", chaingql.BlocksQuery{Workchain: workchain(5)}},
		{"longAgo", chaingql.BlocksQuery{Workchain: workchain(6)}},
		{"absent", chaingql.BlocksQuery{Workchain: workchain(7)}},
	} {
		for _, where := range []string{"Before/near", "Before/anywhere", "After/anywhere"} {
			b.Run(row.name+where, func(b *testing.B) {
				before := spent()
				measure(b, func() error {
					at := all[rng.IntN(million)].Cursor
					if where == "Before/near" {
						at = all[million*3/5+rng.IntN(5000)].Cursor
					}
					q := row.q
					if q.Last, q.Before = 50, at; where == "After/anywhere" {
						q.Last, q.Before, q.First, q.After = 0, "", 50, at
					}
					_, err := backend.Blocks(ctx, q)
					return err
				})
				b.ReportMetric((spent()-before)/float64(b.N), "broker-µs/op")
			})
		}
	}
}

// BenchmarkBlockBySeqNo looks up blocks by random numbers in chains of several lengths. Each lookup begins with empty
// caches, as that of a host that was just started.
func BenchmarkBlockBySeqNo(b *testing.B) {
	for _, n := range []int{10_000, 100_000, million} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			url, spent := newProcess(b)
			ctx, all := context.Background(), uneven(n)
			w := writer(b, open(b, url, nil))
			for from := 0; from < n; from += 5000 {
				if err := w.Append(ctx, all[from:from+5000]...); err != nil {
					b.Fatal(err)
				}
			}
			numbers := map[int32][]uint32{}
			for _, x := range all {
				if x.Workchain != 0 || x.Shard == 1<<59 {
					numbers[x.Workchain] = append(numbers[x.Workchain], x.SeqNo)
				}
			}
			backend := open(b, url, &natschain.Options{Timeout: time.Minute})
			rng := rand.New(rand.NewPCG(1, 2))
			for _, row := range []struct {
				name      string
				workchain int32
				shard     uint64
			}{{"masterchain", -1, 1 << 63}, {"oneOf16Shards", 0, 1 << 59}, {"60Blocks", 5, 1 << 63}} {
				b.Run(row.name, func(b *testing.B) {
					before := spent()
					measure(b, func() error {
						backend.Forget()
						seqNo := numbers[row.workchain][rng.IntN(len(numbers[row.workchain]))]
						_, err := backend.BlockBySeqNo(ctx, row.workchain, row.shard, seqNo)
						return err
					})
					b.ReportMetric((spent()-before)/float64(b.N), "broker-µs/op")
				})
			}
		})
	}
}
