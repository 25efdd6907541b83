package main

import (
	"context"
	"fmt"
	"time"
)

// shortLivedRate is the number of short-lived clients that connect per second.
const shortLivedRate = 200

// churn measures whether short-lived subscribers delay deliveries to steady subscribers.
func churn(ctx context.Context, size sizes, r *report) error {
	a, err := launchSubscribed(ctx, launch, own, "same")
	if err != nil {
		return err
	}
	defer a.stop()
	if err := a.grow(size.steady); err != nil {
		return err
	}
	clients, err := startSelf(ctx, "client", a.addr, own, "same")
	if err != nil {
		return err
	}
	defer clients.stop()
	var quiet, loaded []float64 // milliseconds
	connected, began := 0, time.Duration(0)
	for range max(2, size.rounds/2) {
		if quiet, err = steady(a, quiet, size.blocks); err != nil {
			return err
		}
		var ok, n int
		if err := clients.ask(fmt.Sprintf("churn %d", shortLivedRate), &ok); err != nil {
			return err
		}
		start := time.Now()
		time.Sleep(2 * subscribedTime)
		if loaded, err = steady(a, loaded, size.blocks); err != nil {
			return err
		}
		began += time.Since(start)
		if err := clients.ask("churn 0", &n); err != nil {
			return err
		}
		connected += n
	}
	grown := median(loaded)/median(quiet) - 1
	t := r.table(fmt.Sprintf("%d new sockets per second next to %d subscribers: p99 of delivery (ms)", shortLivedRate,
		size.steady), "", "without new sockets", "with new sockets", "increase")
	t.add(own, fmt.Sprintf("%.1f", median(quiet)), fmt.Sprintf("%.1f", median(loaded)),
		fmt.Sprintf("%.0f %%", 100*grown))
	t.note(fmt.Sprintf("In fact, %.0f sockets per second connected. The columns are measured alternately. "+
		"Each figure is the median of the p99 of %d blocks.",
		float64(connected)/began.Seconds(), len(loaded)))
	r.atMost("short-lived sockets: growth of p99 for steady subscribers", grown, 0.1)
	return nil
}

// steady appends one block to the chain every 100 ms. For each block, it appends the p99 of the
// delivery latency, in milliseconds, to the slice "to".
func steady(a *subscribedServer, to []float64, blocks int) ([]float64, error) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for range blocks {
		<-ticker.C
		before, d, err := a.deliver(1, 10*time.Second)
		if err != nil {
			return nil, err
		}
		to = append(to, float64(d.P99-before)/1e6)
	}
	return to, nil
}
