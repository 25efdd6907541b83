package main

import (
	"context"
	"fmt"
	"time"
)

const comersRate = 200 // sockets per second

// churn measures whether short-lived subscribers delay the steady ones.
func churn(ctx context.Context, size sizes, r *report) error {
	a, err := gather(ctx, own, "same")
	if err != nil {
		return err
	}
	defer a.stop()
	if err := a.grow(size.steady); err != nil {
		return err
	}
	visitors, err := startSelf(ctx, "client", a.addr, own, "same")
	if err != nil {
		return err
	}
	defer visitors.stop()
	var quiet, loaded []float64 // milliseconds
	came, began := 0, time.Duration(0)
	for range max(2, size.rounds/2) {
		if quiet, err = steady(a, quiet, size.blocks); err != nil {
			return err
		}
		var ok, n int
		if err := visitors.ask(fmt.Sprintf("come %d", comersRate), &ok); err != nil {
			return err
		}
		start := time.Now()
		time.Sleep(2 * stay)
		if loaded, err = steady(a, loaded, size.blocks); err != nil {
			return err
		}
		began += time.Since(start)
		if err := visitors.ask("come 0", &n); err != nil {
			return err
		}
		came += n
	}
	grown := median(loaded)/median(quiet) - 1
	t := r.table(fmt.Sprintf("%d new sockets per second next to %d subscribers: p99 of delivery (ms)", comersRate, size.steady), "", "without them", "with them", "increase")
	t.add(own, fmt.Sprintf("%.1f", median(quiet)), fmt.Sprintf("%.1f", median(loaded)), fmt.Sprintf("%.0f %%", 100*grown))
	t.note(fmt.Sprintf("%.0f per second connected. The two are measured alternately; each figure is the median of %d blocks' p99.", float64(came)/began.Seconds(), len(loaded)))
	r.atMost("sockets that come and go: growth of the steady ones' p99", grown, 0.1)
	return nil
}

// steady appends one block every 100 ms and adds the p99 latency of each to the slice, in
// milliseconds.
func steady(a *audience, to []float64, blocks int) ([]float64, error) {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for range blocks {
		<-pace.C
		before, d, err := a.deliver(1, 10*time.Second)
		if err != nil {
			return nil, err
		}
		to = append(to, float64(d.P99-before)/1e6)
	}
	return to, nil
}
