package main

import (
	"context"
	"fmt"
	"time"
)

// burst is the number of blocks in a burst, which are appended at once.
const burst = 20

// fanout measures the delivery of single blocks and of bursts to many subscribers.
func fanout(ctx context.Context, size sizes, r *report) error {
	peers := []string{own, gqlgenGo, gophersGo, handmade}
	t := r.table(fmt.Sprintf("%d subscribers", size.subscribers), append([]string{"measure"}, peers...)...)
	for _, streams := range []string{"same", "different"} {
		if streams == "different" {
			peers = peers[:3] // the handwritten server does not support different streams
		}
		if err := fanoutOf(ctx, streams, peers, size, r, t); err != nil {
			return fmt.Errorf("%s: %w", streams, err)
		}
	}
	t.note(fmt.Sprintf("There are %d different queries, which differ in text, filter, variables and id. "+
		"gqlgen and graph-gophers receive the blocks from one feed, which converts each block once, filters, "+
		"and has a channel for each subscription. "+
		"graph-gophers speaks graphql-ws, and the others speak graphql-transport-ws. "+
		"\"By hand\" is one goroutine that encodes each block once and writes it to all sockets, "+
		"so it shows the cost of writing.", differentStreams))
	return nil
}

// fanoutOf runs the measurements with the same or with different queries.
func fanoutOf(ctx context.Context, streams string, peers []string, size sizes, r *report, t *table) error {
	var all []*subscribedServer
	defer func() {
		for _, a := range all {
			a.stop()
		}
	}()
	memory := costs{}
	for _, peer := range peers {
		a, err := launchSubscribed(ctx, launch, peer, streams)
		if err != nil {
			return err
		}
		all = append(all, a)
		used, err := memoryPerSubscriber(a, size.subscribers)
		if err != nil {
			return err
		}
		memory[peer] = []float64{used}
	}
	d, err := deliveries(all, size.blocks)
	if err != nil {
		return err
	}
	cpu, last := d.cpu, d.last
	setup := fmt.Sprintf("%d subscribers, %s queries", size.subscribers, streams)
	t.show(streams+" queries: CPU per message (µs)", cpu, peers)
	t.show(streams+" queries: time to the last delivery (ms)", last, peers)
	t.show(streams+" queries: memory per idle subscribed connection (kB of RSS)", memory, peers)
	if streams == "different" {
		r.atMost(setup+": our CPU per message over gqlgen's", cpu.ratio(own, gqlgenGo), 0.48)
		return nil
	}
	r.atMost(setup+": our CPU per message over gqlgen's", cpu.ratio(own, gqlgenGo), 0.45)
	r.atMost(setup+": our time to the last delivery over gqlgen's", last.ratio(own, gqlgenGo), 0.45)
	r.atMost("memory per idle subscribed connection, ours over gqlgen's", memory.ratio(own, gqlgenGo), 0.25)
	t.note(fmt.Sprintf("A message of the same query has about %d bytes. "+
		"The client, which is a separate process, needs %.1f µs of CPU time to read a message.", d.bytes,
		median(d.clientCPU)))
	rate := costs{}
	for range size.bursts {
		for _, a := range all {
			if a.peer == gophersGo {
				continue
			}
			s, err := a.send(burst)
			if err != nil {
				return err
			}
			rate[a.peer] = append(rate[a.peer], float64(s.messages)/s.last.Seconds())
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.show(fmt.Sprintf("same queries, a burst of %d blocks: messages per second", burst), rate, peers)
	t.note("The bursts are not measured for graph-gophers, because it lost messages in some bursts " +
		"and closed sockets in others.")
	r.atLeast(fmt.Sprintf("a burst of %d blocks: our messages per second over gqlgen's", burst),
		rate.ratio(own, gqlgenGo), 5)
	return nil
}

// A delivered holds the costs of sending single blocks to all subscribers of several servers.
type delivered struct {
	cpu       costs     // CPU time of each server per message, in microseconds
	last      costs     // time until the last message of each server arrived, in milliseconds
	clientCPU []float64 // CPU time of the clients per message, in microseconds
	bytes     int       // size of a message
}

// deliveries sends blocks one by one, alternately to the subscribers of each server.
func deliveries(all []*subscribedServer, blocks int) (delivered, error) {
	d := delivered{cpu: costs{}, last: costs{}}
	for range blocks {
		for _, a := range all {
			s, err := a.send(1)
			if err != nil {
				return d, err
			}
			d.cpu[a.peer], d.last[a.peer] = append(d.cpu[a.peer], s.serverCPU),
				append(d.last[a.peer], s.last.Seconds()*1000)
			d.bytes, d.clientCPU = s.bytes, append(d.clientCPU, s.clientCPU)
		}
	}
	return d, nil
}

// memoryPerSubscriber adds subscribers and returns the server's memory per subscriber in kilobytes.
func memoryPerSubscriber(a *subscribedServer, subscribers int) (float64, error) {
	empty, err := a.do("free")
	if err != nil {
		return 0, err
	}
	if err := a.grow(subscribers); err != nil {
		return 0, err
	}
	time.Sleep(200 * time.Millisecond)
	full, err := a.do("free")
	return float64(full.RSS-empty.RSS) / 1000 / float64(subscribers), err
}

// show adds a row with the median costs of the peers.
func (t *table) show(measure string, c costs, peers []string) {
	row := []string{measure}
	for _, peer := range peers {
		cell := "-"
		if len(c[peer]) > 0 {
			cell = figure(c.median(peer))
		}
		row = append(row, cell)
	}
	for len(row) < len(t.header) {
		row = append(row, "-")
	}
	t.add(row...)
}
