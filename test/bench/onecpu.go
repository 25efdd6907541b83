package main

import (
	"context"
	"fmt"
)

// oneCPU measures the delivery of blocks to many subscribers if the server may use only one CPU, as in a small
// container.
func oneCPU(ctx context.Context, size sizes, r *report) error {
	peers := []string{own, gqlgenGo, handmade}
	t := r.table(fmt.Sprintf("%d subscribers of a server on one CPU", size.subscribers),
		append([]string{"measure"}, peers...)...)
	for _, streams := range []string{"same", "different"} {
		if err := oneCPUOf(ctx, streams, peers, size, r, t); err != nil {
			return fmt.Errorf("%s: %w", streams, err)
		}
	}
	t.note(fmt.Sprintf("The server has one CPU and GOMAXPROCS is 1. There are %d different queries. "+
		"\"By hand\" writes the same bytes to all sockets, even if the queries are different.", differentStreams))
	return nil
}

// oneCPUOf runs the measurements with the same or with different queries.
func oneCPUOf(ctx context.Context, streams string, peers []string, size sizes, r *report, t *table) error {
	var all []*subscribedServer
	defer func() {
		for _, a := range all {
			a.stop()
		}
	}()
	for _, peer := range peers {
		a, err := launchSubscribed(ctx, launchOnOneCPU, peer, streams)
		if err != nil {
			return err
		}
		all = append(all, a)
		if err := a.grow(size.subscribers); err != nil {
			return err
		}
	}
	d, err := deliveries(all, size.blocks)
	if err != nil {
		return err
	}
	t.show(streams+" queries: CPU per message (µs)", d.cpu, peers)
	t.show(streams+" queries: time to the last delivery (ms)", d.last, peers)
	setup := fmt.Sprintf("one CPU, %d subscribers, %s queries", size.subscribers, streams)
	r.atMost(setup+": our CPU per message over that by hand", d.cpu.ratio(own, handmade), 1.15)
	r.atMost(setup+": our time to the last delivery over that by hand", d.last.ratio(own, handmade), 1.2)
	return nil
}
