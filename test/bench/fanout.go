package main

import (
	"context"
	"fmt"
	"time"
)

// burst is the number of blocks that are appended at once.
const burst = 20

// fanout measures the delivery of one block and of bursts to many subscribers.
func fanout(ctx context.Context, size sizes, r *report) error {
	peers := []string{own, gqlgenGo, gophersGo, handmade}
	t := r.table(fmt.Sprintf("%d subscribers", size.subscribers), append([]string{"measure"}, peers...)...)
	for _, streams := range []string{"same", "different"} {
		if streams == "different" {
			peers = peers[:3] // the handwritten server does not support different streams
		}
		if err := fan(ctx, streams, peers, size, r, t); err != nil {
			return fmt.Errorf("%s: %w", streams, err)
		}
	}
	t.note(fmt.Sprintf("The different ones are of %d texts, filters, variables and ids. gqlgen and graph-gophers get the blocks from one feed that converts each block once and filters; each subscription has a channel. graph-gophers speaks graphql-ws, the others graphql-transport-ws. By hand is one goroutine that encodes each block once and writes it to all sockets: the cost of writing.", differentStreams))
	return nil
}

func fan(ctx context.Context, streams string, peers []string, size sizes, r *report, t *table) error {
	var all []*audience
	defer func() {
		for _, a := range all {
			a.stop()
		}
	}()
	memory := costs{}
	for _, peer := range peers {
		a, err := gather(ctx, peer, streams)
		if err != nil {
			return err
		}
		all = append(all, a)
		used, err := settle(a, size.subscribers)
		if err != nil {
			return err
		}
		memory[peer] = []float64{used}
	}
	cpu, last := costs{}, costs{}
	bytes, crowd := 0, []float64{}
	for range size.blocks {
		for _, a := range all {
			s, err := a.send(1)
			if err != nil {
				return err
			}
			cpu[a.peer], last[a.peer] = append(cpu[a.peer], s.cpu), append(last[a.peer], s.last.Seconds()*1000)
			bytes, crowd = s.bytes, append(crowd, s.crowd)
		}
	}
	who := fmt.Sprintf("%d subscribers, %s queries", size.subscribers, streams)
	t.show(streams+" queries: CPU per message (µs)", cpu, peers)
	t.show(streams+" queries: time to the last delivery (ms)", last, peers)
	t.show(streams+" queries: memory per idle subscribed connection (kB of RSS)", memory, peers)
	if streams == "different" {
		r.atMost(who+": our CPU per message over gqlgen's", cpu.ratio(own, gqlgenGo), 0.48)
		return nil
	}
	r.atMost(who+": our CPU per message over gqlgen's", cpu.ratio(own, gqlgenGo), 0.45)
	r.atMost(who+": our time to the last delivery over gqlgen's", last.ratio(own, gqlgenGo), 0.45)
	r.atMost("memory per idle subscribed connection, ours over gqlgen's", memory.ratio(own, gqlgenGo), 0.25)
	t.note(fmt.Sprintf("A message of the same query has about %d bytes. Reading one takes the client, which has a process of its own, %.1f µs.", bytes, median(crowd)))
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
	t.note("graph-gophers has no part in the bursts: it lost messages in some and closed sockets in others.")
	r.atLeast(fmt.Sprintf("a burst of %d blocks: our messages per second over gqlgen's", burst), rate.ratio(own, gqlgenGo), 5)
	return nil
}

// settle adds subscribers and returns the server's memory for each, in kilobytes.
func settle(a *audience, subscribers int) (float64, error) {
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
