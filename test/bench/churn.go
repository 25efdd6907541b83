package main

import (
	"context"
	"fmt"
	"time"
)

const comersRate = 200 // a second

// churn measures whether those that come and go delay those that stay.
func churn(ctx context.Context, size sizes, r *report) error {
	a, err := gather(ctx, own, "same")
	if err != nil {
		return err
	}
	defer a.stop()
	if err := a.grow(size.steady); err != nil {
		return err
	}
	door, err := startSelf(ctx, "client", a.addr, own, "same")
	if err != nil {
		return err
	}
	defer door.stop()
	var calm, busy []float64 // milliseconds
	came, began := 0, time.Duration(0)
	for range max(2, size.rounds/2) {
		if calm, err = steady(a, calm, size.blocks); err != nil {
			return err
		}
		var ok, n int
		if err := door.ask(fmt.Sprintf("come %d", comersRate), &ok); err != nil {
			return err
		}
		start := time.Now()
		time.Sleep(2 * stay)
		if busy, err = steady(a, busy, size.blocks); err != nil {
			return err
		}
		began += time.Since(start)
		if err := door.ask("come 0", &n); err != nil {
			return err
		}
		came += n
	}
	grown := median(busy)/median(calm) - 1
	t := r.table(fmt.Sprintf("%d sockets a second beside %d subscribers: p99 of delivery (ms)", comersRate, size.steady), "", "alone", "beside them", "more")
	t.add(own, fmt.Sprintf("%.1f", median(calm)), fmt.Sprintf("%.1f", median(busy)), fmt.Sprintf("%.0f %%", 100*grown))
	t.note(fmt.Sprintf("%.0f a second came in fact. The two take turns; each figure is the median of %d blocks' p99.", float64(came)/began.Seconds(), len(busy)))
	r.atMost("sockets that come and go: growth of the steady ones' p99", grown, 0.1)
	return nil
}

// steady sends some blocks at a steady pace and adds the p99 of each.
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
