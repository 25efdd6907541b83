package main

import (
	"context"
	"fmt"
	"slices"
)

// maxGrowth is the maximum ratio of two costs that still counts as no growth.
const maxGrowth = 1.1

// growth measures whether the costs of a message and of a query depend on the number of connections.
// It measures servers with different numbers of connections alternately.
func growth(ctx context.Context, size sizes, r *report) error {
	var all []*subscribedServer
	var loads []*load
	defer func() {
		for _, l := range loads {
			l.close()
		}
		for _, a := range all {
			a.stop()
		}
	}()
	for _, peer := range []string{own, handmade} {
		for _, n := range size.growth {
			a, err := launchSubscribed(ctx, launch, peer, "same")
			if err != nil {
				return err
			}
			all = append(all, a)
			if err := a.grow(n); err != nil {
				return err
			}
			l, err := newLoad(a.addr, queries[0].body, size.connections)
			if err != nil {
				return err
			}
			loads = append(loads, l)
		}
	}
	cpu, last, asked := costs{}, costs{}, costs{}
	for range max(2, size.rounds/2) {
		for i, a := range all {
			if err := a.measure(loads[i], size, cpu, last, asked); err != nil {
				return err
			}
		}
	}
	t := r.table("Growth with subscribed connections", "connections", "CPU per message (µs)", "by hand",
		"time to the last delivery (ms)", "by hand", "CPU per query over loopback (µs)", "by hand")
	for _, n := range size.growth {
		mine, theirs := contenderName(own, n), contenderName(handmade, n)
		t.add(fmt.Sprint(n), figure(cpu.median(mine)), figure(cpu.median(theirs)), figure(last.median(mine)),
			figure(last.median(theirs)),
			figure(asked.median(mine)), figure(asked.median(theirs)))
	}
	t.note("In the handwritten server (\"by hand\"), one goroutine writes the same bytes to all sockets. " +
		"Its cost grows because of the machine: the CPU caches hold the kernel's state of only a few sockets.")
	few, many := size.growth[0], size.growth[len(size.growth)-1]
	for _, c := range []struct {
		costs
		unit string
	}{{cpu, "message"}, {asked, "query"}} {
		mine, theirs := c.growth(own, size.growth), c.growth(handmade, size.growth)
		r.atMost(fmt.Sprintf("CPU per %s, worst of %d to %d connections against the fewest", c.unit, few, many), mine,
			maxGrowth)
		r.atMost(fmt.Sprintf("CPU per %s, this growth relative to the growth by hand", c.unit), mine/theirs, maxGrowth)
	}
	return nil
}

// contenderName returns the name of a contender: a peer with n connections.
func contenderName(peer string, n int) string { return fmt.Sprint(peer, " ", n) }

// growth returns the ratio of the highest cost to the cost with the fewest connections.
func (c costs) growth(peer string, sizes []int) float64 {
	var all []float64
	for _, n := range sizes {
		all = append(all, c.ratio(contenderName(peer, n), contenderName(peer, sizes[0])))
	}
	return slices.Max(all)
}

// measure runs one round, which consists of some blocks and a load of queries. With fewer subscribers,
// there are more blocks, so that the number of messages stays about the same.
func (a *subscribedServer) measure(l *load, size sizes, cpu, last, asked costs) error {
	name := contenderName(a.peer, a.size)
	var took, late []float64
	for range max(2, min(100, 20_000/a.size)) {
		s, err := a.send(1)
		if err != nil {
			return err
		}
		took, late = append(took, s.serverCPU), append(late, s.last.Seconds()*1000)
	}
	_, cost, err := a.load(l, size.load)
	cpu[name], last[name], asked[name] = append(cpu[name], median(took)), append(last[name], median(late)),
		append(asked[name], cost)
	return err
}
