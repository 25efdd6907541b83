package main

import (
	"context"
	"fmt"
)

// sockets measures queries over WebSockets. On Linux, chaingql waits for the messages of idle sockets with epoll. The
// other contender is the same library with a goroutine that reads from each socket.
func sockets(ctx context.Context, size sizes, r *report) error {
	peers := []string{own, blocking}
	servers, err := launchAll(ctx, launch, peers)
	defer stopAll(servers)
	if err != nil {
		return err
	}
	t := r.table(fmt.Sprintf("%d WebSockets: CPU of the server per query (µs)", size.connections),
		append([]string{"query"}, peers...)...)
	for _, q := range queries {
		if q.stored {
			continue // the servers have a live chain
		}
		_, costs, err := alternateLoads(ctx, servers, newSocketLoad, q.body, max(2, size.rounds/3), size.load, size)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		t.show(q.name, costs, peers)
		r.atMost("WebSockets, "+q.name+": our CPU over that with "+blocking, costs.ratio(own, blocking), 1.05)
	}
	t.note("Each socket sends its next query when it has received the response to the previous one.")
	return nil
}
